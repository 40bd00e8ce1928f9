"""Rows that are nearly the same, by MinHash of what the model wrote of them. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Key = tuple[int, ...]
SHINGLE = 5
"""Words of a shingle."""
PERMUTATIONS = 128
"""Of MinHash: similarities are estimated to about 0.09 (one over the root of this)."""


@dataclass(frozen=True)
class Unit:
    """A row, as near-duplicates are found: what the model wrote of it, and which of two is kept."""

    key: Key
    text: str
    reward: float | None
    """The higher is kept; None counts below all."""
    apart: str = ""
    """Rows are compared only with those that have the same here."""


@dataclass(frozen=True)
class Double:
    """A row that was removed, and the one that it is like."""

    key: Key
    like: Key
    similarity: float
    """Estimated Jaccard similarity of their shingles, 0 to 1."""


def shingles(text: str, apart: str = "") -> set[bytes]:
    """A text's runs of five words; of a shorter one all its words. None of an empty text."""
    words = text.split()
    last = max(1, len(words) - SHINGLE + 1) if words else 0
    return {"\x00".join((apart, *words[at : at + SHINGLE])).encode() for at in range(last)}


def jaccard(one: str, other: str) -> float:
    """Similarity of two texts by their shingles, 0 to 1; 0 where one of them is empty."""
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b) if a and b else 0.0


def doubles(units: Iterable[Unit], threshold: float, told: Callable[[], None] = lambda: None) -> list[Double]:
    """Rows to remove, in the order of `units`, which are from the oldest to the newest.

    Best first, a row is kept unless one that is kept is like it: so of two near-duplicates the one with the higher
    reward stays, then the older. Takes about 2 kB of memory a row. `told` is called once for each row.
    """
    from datasketch import MinHash, MinHashLSH

    hashes: list[tuple[Unit, Any]] = []
    for unit in units:
        parts = shingles(unit.text, unit.apart)
        if parts:
            found = MinHash(num_perm=PERMUTATIONS, seed=1)
            found.update_batch(sorted(parts))
            hashes.append((Unit(unit.key, "", unit.reward, unit.apart), found))
        told()
    # Pairs that it finds are compared; what it misses is missed for good, so it is set to find many.
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
    removed: dict[int, Double] = {}
    best = sorted(range(len(hashes)), key=lambda at: (-_worth(hashes[at][0]), at))
    for at in best:
        unit, found = hashes[at]
        alike = [(hashes[other][1].jaccard(found), other) for other in sorted(index.query(found))]
        like = max(alike, key=lambda one: (one[0], -one[1]), default=None)
        if like is not None and like[0] >= threshold:
            removed[at] = Double(unit.key, hashes[like[1]][0].key, round(float(like[0]), 4))
        else:
            index.insert(at, found)
    return [removed[at] for at in sorted(removed)]


def _worth(unit: Unit) -> float:
    return float("-inf") if unit.reward is None else unit.reward
