"""Search in the passages of a job's documents."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from weavegen.database import Connection
from weavegen.search.bm25 import word_counts
from weavegen.search.cache import cache_of
from weavegen.search.index import Segment, rank_segment
from weavegen.search.postings import PostingLists
from weavegen.store import documents
from weavegen.store.documents import lines
from weavegen.trace.query import words

MIN_PASSAGE_CHARS = 800
"""A passage ends with the paragraph in which it reaches this length."""
MAX_PASSAGE_CHARS = 2_400
"""A passage ends with the line in which it reaches this length."""


class Passage(NamedTuple):
    """Where a passage stands."""

    path: str
    first_line: int
    """From 1."""
    last_line: int


class Passages:
    """An immutable index of the passages of some documents, given as (path, text)."""

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self.passages: list[Passage] = []

        def counts() -> Iterator[Counter[str]]:
            for path, text in texts:
                for passage, body in split(path, text):
                    self.passages.append(passage)
                    yield word_counts(body)

        self._lists = PostingLists(counts())

    @property
    def bytes(self) -> int:
        """Approximate size in memory."""
        return self._lists.bytes + 200 * len(self.passages)

    def search(self, query: str, top_k: int) -> list[tuple[Passage, float]]:
        """The best passages for a query of plain words, best first, with their scores. Each holds one of the words."""
        segment = Segment(len(self.passages), {"lengths": self._lists.lengths}, self._lists.postings(words(query)))
        return [(self.passages[at], score) for at, score in rank_segment(segment, query, top_k)]


def split(path: str, text: str) -> Iterator[tuple[Passage, str]]:
    """A text's passages with their bodies. Short paragraphs are joined, long ones are split between lines."""
    body_lines: list[str] = []
    size = 0
    all_lines = lines(text)
    for number, line in enumerate(all_lines, 1):
        body_lines.append(line)
        size += len(line) + 1
        at_paragraph_end = size >= MIN_PASSAGE_CHARS and not line.strip()
        if number == len(all_lines) or size >= MAX_PASSAGE_CHARS or at_paragraph_end:
            body = "\n".join(body_lines)
            if body.strip():
                yield Passage(path, number - len(body_lines) + 1, number), body
            body_lines, size = [], 0


def passages_of(conn: Connection, job_id: int) -> Passages:
    """The passages of a job's documents, from the cache if the process has them there."""
    cache, key = cache_of(conn.database), ("passages", job_id)
    passages: Passages | None = cache.get([key]).get(key)
    if passages is None:
        passages = Passages(documents.texts(conn, job_id))
        cache.put(key, passages, passages.bytes)
    return passages
