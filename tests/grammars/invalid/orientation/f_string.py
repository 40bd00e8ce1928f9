f"""I think about {1}."""
