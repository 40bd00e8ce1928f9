"""Finds rows that are nearly the same, by MinHash of the text that the model wrote in them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weavegen.exports.format import Key

SHINGLE_WORDS = 5
PERMUTATIONS = 128
"""Permutations of MinHash: the error of a similarity is about 0.09, one over the square root."""


@dataclass(frozen=True)
class Unit:
    """A row as it is compared."""

    key: Key
    text: str
    """What the model wrote in it."""
    reward: float | None
    """Of two near-duplicates the one with the higher reward is kept. None counts below all."""
    apart: str = ""
    """Rows are compared only with rows of the same value."""


@dataclass(frozen=True)
class Double:
    """A removed row, and the kept row that it resembles."""

    key: Key
    like: Key
    similarity: float
    """Estimated Jaccard similarity of their shingles, 0 to 1."""


def shingles(text: str, apart: str = "") -> set[bytes]:
    """The runs of SHINGLE_WORDS words of a text; of a shorter text all words, of an empty one nothing."""
    words = text.split()
    last = max(1, len(words) - SHINGLE_WORDS + 1) if words else 0
    return {"\x00".join((apart, *words[at : at + SHINGLE_WORDS])).encode() for at in range(last)}


def jaccard(text: str, other: str) -> float:
    """Jaccard similarity of two texts by their shingles, 0 to 1; 0 if one of them is empty."""
    a, b = shingles(text), shingles(other)
    return len(a & b) / len(a | b) if a and b else 0.0


def doubles(units: Iterable[Unit], threshold: float) -> list[Double]:
    """The rows to remove, in the order of `units`, which come from the oldest to the newest.

    Rows are taken from the highest reward to the lowest, older ones first. A row is kept unless it resembles one
    that is kept. Needs about 2 kB of memory per row.
    """
    from datasketch import MinHash, MinHashLSH

    hashes: list[tuple[Unit, Any]] = []
    for unit in units:
        if parts := shingles(unit.text, unit.apart):
            minhash = MinHash(num_perm=PERMUTATIONS, seed=1)
            minhash.update_batch(sorted(parts))
            hashes.append((Unit(unit.key, "", unit.reward, unit.apart), minhash))
    # The index proposes pairs, which are then compared. These weights make it miss few at the cost of more pairs.
    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
    removed: dict[int, Double] = {}
    rewards = [unit.reward for unit, _ in hashes]
    for at in sorted(range(len(hashes)), key=lambda at: (rewards[at] is None, -(rewards[at] or 0.0), at)):
        unit, minhash = hashes[at]
        similar = [(hashes[other][1].jaccard(minhash), other) for other in sorted(index.query(minhash))]
        similarity, nearest = max(similar, key=lambda pair: (pair[0], -pair[1]), default=(0.0, at))
        if similar and similarity >= threshold:
            removed[at] = Double(unit.key, hashes[nearest][0].key, round(float(similarity), 4))
        else:
            index.insert(at, minhash)
    return [removed[at] for at in sorted(removed)]
