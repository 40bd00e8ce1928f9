"""Linting of candidates: legal structure, truncation to it, beginnings of legal blocks, forged markup. Pure."""
