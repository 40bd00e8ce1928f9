b"""I think about it."""
