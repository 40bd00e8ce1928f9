"""I think of """quotes""" in my text."""
