thought = """I think about it."""
