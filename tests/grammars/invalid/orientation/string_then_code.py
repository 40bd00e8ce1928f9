"""I think about it."""
move(1)
print("moved")
