x = move(1)
"""I think about it."""
