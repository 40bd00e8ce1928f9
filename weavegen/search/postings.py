"""Postings as bytes: in which texts of a segment a word stands, and how often. And other pairs of numbers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weavegen.search.bm25 import Spread

POSITION, TIMES = np.dtype("<u2"), np.dtype("u1")
MOST_TEXTS = 1 << 16
"""Of a segment: what positions can tell apart."""
MOST_TIMES = 255
"""A count of more than this is kept as this: BM25 gains less than 1 % by what is above."""
PAIR = np.dtype("<u4")
"""Either number of a pair."""


def pack_pairs(pairs: Sequence[tuple[int, int]]) -> bytes:
    """Pairs of numbers below 2**32."""
    return np.array(pairs, PAIR).tobytes()


def unpack_pairs(data: bytes) -> NDArray[np.uint32]:
    """What `pack_pairs` made of them: a row for each pair."""
    return np.frombuffer(data, PAIR).reshape(-1, 2)


def pack_spread(spread: Spread) -> bytes:
    """How many words stand in so many texts, as pairs (texts, words)."""
    return pack_pairs(sorted(pair for pair in spread.items() if pair[1]))


def unpack_spread(data: bytes) -> Spread:
    """What `pack_spread` made of it."""
    return Counter(dict(unpack_pairs(data).tolist()))


class Posting(NamedTuple):
    """Where a word stands in a segment."""

    positions: NDArray[np.uint16] | None
    """Of the texts that hold it, ascending; None: `times` has a place for each text of the segment."""
    times: NDArray[np.uint8]

    def holding(self, among: NDArray[np.bool_] | None = None) -> int:
        """How many texts hold the word, of all or of those marked in `among` (one mark for each text)."""
        if self.positions is None:
            return int(np.count_nonzero(self.times if among is None else self.times[among]))
        return len(self.positions) if among is None else int(np.count_nonzero(among[self.positions]))

    def mark(self, texts: NDArray[np.bool_]) -> None:
        """Mark those that hold the word (one mark for each text)."""
        if self.positions is None:
            texts |= self.times > 0
        else:
            texts[self.positions] = True

    def at(self, positions: NDArray[Any]) -> NDArray[np.uint8]:
        """How often the word stands in these texts."""
        times: NDArray[np.uint8]
        if self.positions is None:
            times = self.times[positions]
            return times
        places = np.searchsorted(self.positions, positions)
        places[places == len(self.positions)] = 0
        times = self.times[places]
        times[self.positions[places] != positions] = 0
        return times


def is_dense(holding: int, size: int) -> bool:
    """Whether a posting has a place for each of `size` texts, as that takes less than positions and times."""
    return 3 * holding > size


def pack(positions: NDArray[Any], times: NDArray[Any], size: int) -> bytes:
    """A posting of a segment of `size` texts; positions ascending, times up to MOST_TIMES."""
    if is_dense(len(positions), size):
        placed = np.zeros(size, TIMES)
        placed[positions] = times
        return placed.tobytes()
    return positions.astype(POSITION).tobytes() + times.astype(TIMES).tobytes()


def unpack(data: bytes, holding: int, size: int) -> Posting:
    """What `pack` made of a word that stands in `holding` texts."""
    if is_dense(holding, size):
        return Posting(None, np.frombuffer(data, TIMES))
    times = np.frombuffer(data, TIMES, offset=holding * POSITION.itemsize)
    return Posting(np.frombuffer(data, POSITION, count=holding), times)


def joined(parts: Sequence[tuple[int, Posting]], size: int) -> tuple[int, bytes]:
    """(texts that hold the word, packed posting) in a segment of `size` texts that is made of several.

    `parts`: (position of the part's first text in the new segment, its posting), in order.
    """
    positions, times = [], []
    for offset, part in parts:
        held = np.flatnonzero(part.times) if part.positions is None else part.positions
        times.append(part.times[held] if part.positions is None else part.times)
        positions.append(held.astype(np.intp) + offset)
    together = np.concatenate(positions)
    return len(together), pack(together, np.concatenate(times), size)
