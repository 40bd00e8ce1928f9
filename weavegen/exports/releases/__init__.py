"""Releases: frozen exports. A folder can be verified against its release and written again byte for byte."""
