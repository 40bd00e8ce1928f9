"""Seeds: all randomness of a trace derives from its seed, so a replay draws the same numbers."""

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A 48-bit seed that depends on nothing but `parts`."""
    digest = hashlib.sha256("\x00".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6], "big")
