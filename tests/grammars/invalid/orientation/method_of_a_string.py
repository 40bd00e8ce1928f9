"""I think about it.""".strip()
