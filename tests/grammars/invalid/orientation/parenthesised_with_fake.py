("""I think, """  # q: Is this good? Yes. (99%)
 """and think.""")
x = 1
