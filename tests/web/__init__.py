"""The viewer in a real browser with a real database."""
