"""Releases: exports that are frozen, and can be compared with what they were and written again."""
