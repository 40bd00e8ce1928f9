"""I think."""  # and so on
# and on
