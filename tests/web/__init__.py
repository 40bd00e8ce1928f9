"""The viewer, in a real browser, over a real database."""
