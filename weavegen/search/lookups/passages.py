"""BM25 over the passages of a job's documents, with rank-bm25 as the scorer."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weavegen.search.bm25 import K1, PICKED, damping, scored
from weavegen.search.cache import cache_of
from weavegen.store import documents
from weavegen.store.documents import lines
from weavegen.trace.query import words

FULL = 800
"""Characters from which on a passage ends with its paragraph."""
LONGEST = 2_400
"""Characters at which it ends anyway, with its line."""


@dataclass(frozen=True)
class Passage:
    """Where a passage stands."""

    path: str
    first_line: int
    """From 1."""
    last_line: int


@dataclass(frozen=True)
class Found:
    """A passage that a query finds."""

    passage: Passage
    score: float


class Passages:
    """The passages of some documents, and where which word stands. Never changes."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self.passages: list[Passage] = []
        self._number: dict[str, int] = {}
        """Of each word."""
        pairs: list[NDArray[np.int64]] = []
        lengths: list[int] = []
        for path, text in texts:
            for passage, body in cut(path, text):
                found = words(body)
                numbers = np.array([self._number.setdefault(word, len(self._number)) for word in found], np.int64)
                pairs.append(numbers << 32 | len(self.passages))
                self.passages.append(passage)
                lengths.append(len(found))
        self.lengths = np.array(lengths, np.float64)
        whole = np.concatenate(pairs) if pairs else np.zeros(0, np.int64)
        keys, times = np.unique(whole, return_counts=True)
        self._places = (keys & 0xFFFFFFFF).astype(np.uint32)
        self._times = np.minimum(times, 0xFFFF).astype(np.uint16)
        self._starts = np.searchsorted(keys, np.arange(len(self._number) + 1, dtype=np.int64) << 32)

    @property
    def bytes(self) -> int:
        """About as much memory as it takes."""
        arrays = self.lengths.nbytes + self._places.nbytes + self._times.nbytes + self._starts.nbytes
        return arrays + 200 * len(self.passages) + 150 * len(self._number)

    def posting(self, word: str) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
        """The passages that hold a word, and how often."""
        number = self._number.get(word)
        found = slice(0, 0) if number is None else slice(self._starts[number], self._starts[number + 1])
        return self._places[found], self._times[found]

    def search(self, query: str, most: int) -> list[Found]:
        """The best passages, best first; each holds one of the query's words.

        A word's rarity is ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative: in a folder of three
        passages a word that two of them hold still counts for them.
        """
        asked = words(query)
        size = len(self.passages)
        postings = {word: posting for word in set(asked) if len((posting := self.posting(word))[0])}
        if not postings:
            return []
        worth = {
            word: math.log1p((size - len(places) + 0.5) / (len(places) + 0.5))
            for word, (places, _) in postings.items()
        }
        asked = [word for word in asked if word in worth]
        mean = float(self.lengths.mean())
        rough = np.zeros(size)
        below = damping(self.lengths, mean)
        for word in asked:
            places, times = postings[word]
            rough[places] += worth[word] * (K1 + 1) * times / (below[places] + times)
        most_picked = max(PICKED, 4 * most)
        holding = np.flatnonzero(rough)
        picked = holding[np.argsort(-rough[holding], kind="stable")[:most_picked]]
        counts: list[dict[str, int]] = [{} for _ in picked]
        for word, (places, times) in postings.items():
            at = np.searchsorted(places, picked)
            for count, place, position in zip(counts, at.tolist(), picked.tolist(), strict=True):
                if place < len(places) and places[place] == position:
                    count[word] = int(times[place])
        scores = scored(asked, counts, self.lengths[picked], mean, worth).tolist()
        order = sorted(zip(picked.tolist(), scores, strict=True), key=lambda found: (-found[1], found[0]))
        return [Found(self.passages[position], score) for position, score in order[:most]]


def cut(path: str, text: str) -> Iterator[tuple[Passage, str]]:
    """A text's passages: whole paragraphs, together where they are short; long ones are cut between lines."""
    begun: list[str] = []
    size = 0
    all_lines = lines(text)
    for number, line in enumerate(all_lines, 1):
        begun.append(line)
        size += len(line) + 1
        ends = number == len(all_lines) or size >= LONGEST or (size >= FULL and not line.strip())
        if ends:
            body = "\n".join(begun)
            if body.strip():
                yield Passage(path, number - len(begun) + 1, number), body
            begun, size = [], 0


def passages_of(conn: sa.Connection, job_id: int) -> Passages:
    """The passages of a job's documents. A process keeps those that it was asked for lately."""
    cache = cache_of(conn.engine)
    key = ("passages", job_id)
    found: Passages | None = cache.get([key]).get(key)
    if found is None:
        found = Passages(documents.texts(conn, job_id))
        cache.put(key, found, found.bytes)
    return found
