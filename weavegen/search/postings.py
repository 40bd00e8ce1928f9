"""Postings: in which texts of a segment a word occurs, and how often. Also their form as bytes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weavegen.search.bm25 import DfHistogram

POSITION, COUNT = np.dtype("<u2"), np.dtype("u1")
MAX_SEGMENT_TEXTS = 1 << 16
"""Positions have 16 bits."""
MAX_COUNT = 255
"""Higher counts are stored as this one. In a text of average length they would raise BM25 by less than 1 %."""
PAIR = np.dtype("<u4")
"""Type of both numbers of a pair."""
Marks = NDArray[np.bool_]
"""One flag for each text of a segment."""


def pack_pairs(pairs: Sequence[tuple[int, int]] | NDArray[Any]) -> bytes:
    """Pairs of numbers below 2**32 as bytes."""
    return np.array(pairs, PAIR).tobytes()


def unpack_pairs(data: bytes) -> NDArray[np.uint32]:
    """The inverse of `pack_pairs`: an array of shape (pairs, 2)."""
    return np.frombuffer(data, PAIR).reshape(-1, 2)


def pack_histogram(histogram: DfHistogram) -> bytes:
    """A histogram as pairs (document frequency, words), without the empty entries."""
    return pack_pairs(sorted(pair for pair in histogram.items() if pair[1]))


def unpack_histogram(data: bytes) -> DfHistogram:
    """The inverse of `pack_histogram`."""
    return Counter(dict(unpack_pairs(data).tolist()))


class Posting(NamedTuple):
    """The texts of a segment that hold a word."""

    positions: NDArray[Any] | None
    """Positions of the texts that hold the word, ascending. None: `counts` has an entry for each text."""
    counts: NDArray[Any]
    """How often the word occurs in each of these texts."""

    def frequency(self, among: Marks | None = None) -> int:
        """How many texts hold the word, of all or of the marked ones."""
        if self.positions is None:
            return int(np.count_nonzero(self.counts if among is None else self.counts[among]))
        return len(self.positions) if among is None else int(np.count_nonzero(among[self.positions]))

    def mark(self, texts: Marks) -> None:
        """Mark the texts that hold the word."""
        if self.positions is None:
            texts |= self.counts > 0
        else:
            texts[self.positions] = True

    def at(self, positions: NDArray[Any]) -> NDArray[Any]:
        """How often the word occurs in the texts at these positions."""
        if self.positions is None:
            counts: NDArray[Any] = self.counts[positions]
            return counts
        places = np.searchsorted(self.positions, positions.astype(self.positions.dtype))
        places[places == len(self.positions)] = 0
        counts = self.counts[places]
        counts[self.positions[places] != positions] = 0
        return counts


class PostingLists:
    """The postings of all words of some texts, given as their word counts."""

    def __init__(self, texts: Iterable[Counter[str]]) -> None:
        self._numbers: dict[str, int] = {}
        """Of all words, in the order of the arrays."""
        keys, counts, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.uint32)], []
        for position, text in enumerate(texts):
            numbers = [self._numbers.setdefault(word, len(self._numbers)) for word in text]
            keys.append(np.array(numbers, np.int64) << 32 | position)
            counts.append(np.array(list(text.values()), np.uint32))
            lengths.append(text.total())
        self.lengths = np.array(lengths, np.uint32)
        """Words of each text."""
        sorted_keys = np.concatenate(keys)
        order = np.argsort(sorted_keys)
        sorted_keys = sorted_keys[order]
        self.positions = (sorted_keys & 0xFFFFFFFF).astype(np.uint32)
        self.counts = np.concatenate(counts)[order]
        self._starts = np.searchsorted(sorted_keys, np.arange(len(self._numbers) + 1, dtype=np.int64) << 32)

    @property
    def words(self) -> list[str]:
        """All words, sorted."""
        return sorted(self._numbers)

    def rows(self, word: str) -> slice:
        """The part of `positions` and `counts` that belongs to a word."""
        number = self._numbers[word]
        return slice(self._starts[number], self._starts[number + 1])

    def postings(self, words: Iterable[str]) -> dict[str, Posting]:
        """The postings of those of the words that occur."""
        rows = {word: self.rows(word) for word in words if word in self._numbers}
        return {word: Posting(self.positions[part], self.counts[part]) for word, part in rows.items()}

    @property
    def bytes(self) -> int:
        """Approximate size in memory."""
        arrays = (self.lengths, self.positions, self.counts, self._starts)
        return sum(array.nbytes for array in arrays) + 150 * len(self._numbers)


def is_dense(frequency: int, size: int) -> bool:
    """Whether one count for each of `size` texts takes fewer bytes than positions with counts."""
    return 3 * frequency > size


def pack(positions: NDArray[Any], counts: NDArray[Any], size: int) -> bytes:
    """A posting of a segment of `size` texts as bytes. Positions ascend; higher counts than MAX_COUNT are cut."""
    counts = np.minimum(counts, MAX_COUNT).astype(COUNT)
    if is_dense(len(positions), size):
        dense = np.zeros(size, COUNT)
        dense[positions] = counts
        return dense.tobytes()
    return positions.astype(POSITION).tobytes() + counts.tobytes()


def unpack(data: bytes, frequency: int, size: int) -> Posting:
    """The inverse of `pack`, for a word that `frequency` texts hold."""
    if is_dense(frequency, size):
        return Posting(None, np.frombuffer(data, COUNT))
    counts = np.frombuffer(data, COUNT, offset=frequency * POSITION.itemsize)
    return Posting(np.frombuffer(data, POSITION, count=frequency), counts)


def merge_postings(parts: Sequence[tuple[int, Posting]], size: int) -> tuple[int, bytes]:
    """(document frequency, packed posting) of a word in a segment of `size` texts that is merged from several.

    `parts`: (position of the old segment's first text in the new segment, its posting), in order.
    """
    positions, counts = [], []
    for offset, part in parts:
        old = np.flatnonzero(part.counts) if part.positions is None else part.positions
        counts.append(part.counts[old] if part.positions is None else part.counts)
        positions.append(old.astype(np.intp) + offset)
    merged = np.concatenate(positions)
    return len(merged), pack(merged, np.concatenate(counts), size)
