"""I think about it."""
"""And about this."""
