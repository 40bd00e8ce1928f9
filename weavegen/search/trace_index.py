"""Search in the past of one trace and the examples (WEAVE section 7).

A trace may have ten thousand blocks before its window. They are indexed in segments, so that a query need not read
all of them: it reads the rows of `postings` for its own words, and the text of the blocks that are in no segment
yet (fewer than fill one) and of the examples.

Segments are made when a query is saved, under the trace's lock, from blocks that have left the window. Recording a
block costs nothing extra. Segments depend on the trace's blocks alone, so equal traces give equal scores, whatever
else is being written. The corpus index cannot give that.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import Hit, Retrieve
from weavegen.search import bm25, index
from weavegen.search.bm25 import DfHistogram, word_counts
from weavegen.search.documents import RETRIEVABLE, type_number
from weavegen.search.index import Segment, hits_of, segment_of
from weavegen.search.postings import Posting, PostingLists, pack_histogram, pack_pairs, unpack_histogram, unpack_pairs
from weavegen.trace.query import Query

SEGMENT_BLOCKS = 128
"""Blocks of a segment. With fewer, a common word has more rows to read; with more, more text is read."""

DOCUMENT = np.dtype([("id", "<i8"), ("length", "<u4"), ("type", "u1")])
"""A block in `segments.documents`: its id, its length in words, its type's position in RETRIEVABLE."""


@dataclass(frozen=True)
class Sealed:
    """The segments of a trace that end before a query's cutoff; by default none."""

    conn: Connection | None = None
    trace_id: int = 0
    segments: int = 0
    end: int = 0
    """Index in the trace of the block after their last one."""
    documents: NDArray[Any] = field(default_factory=lambda: np.zeros(0, DOCUMENT))

    def segment(self, words: Collection[str]) -> Segment:
        """All of them as one segment, with the postings of some words."""
        columns = {f"{name}s": self.documents[name] for name in ("id", "length", "type")}
        postings = {row.word: Posting(*unpack_pairs(row.blocks).T) for row in self._rows("trace_postings", words)}
        return Segment(len(self.documents), columns, postings)

    def frequencies(self, words: Collection[str]) -> dict[str, int]:
        """The document frequencies of those of the words that occur."""
        return {row.word: row.documents for row in self._rows("trace_frequencies", words)}

    def histogram(self) -> DfHistogram:
        """The histogram of the document frequencies of all words."""
        return next((unpack_histogram(row.spread) for row in self._rows("trace_histogram")), Counter())

    def _rows(self, name: str, words: Collection[str] = ()) -> Sequence[Any]:
        if self.conn is None:
            return []
        values = {"trace": self.trace_id, "segments": self.segments, "words": list(words)}
        return sql.run(self.conn, f"search/{name}", **values).all()


def sealed(conn: Connection, trace_id: int, before: int) -> Sealed:
    """The segments of a trace below a cutoff."""
    row = sql.run(conn, "search/trace_segments", trace=trace_id, before=before).one()
    if row.segments == 0:
        return Sealed()
    return Sealed(conn, trace_id, row.segments, row.end, np.frombuffer(row.documents, DOCUMENT))


def search(conn: Connection, trace_id: int, query: Query, step: Retrieve) -> list[Hit]:
    """The hits of a query, best first: at most `step.top_k_hits`, none below `step.least_score`."""
    past = sealed(conn, trace_id, step.before)
    values = {"trace": trace_id, "first": past.end, "before": step.before, "types": list(RETRIEVABLE)}
    return rank(sql.run(conn, "search/trace_texts", **values).all(), query, step, past)


def rank(rows: Sequence[Any], query: Query, step: Retrieve, past: Sealed | None = None) -> list[Hit]:
    """The hits among rows (id, type, body, example) and the sealed segments. The statistics cover all of them."""
    past = past or Sealed()
    query_words = {*query.words, *query.unwanted}
    counts = [word_counts(row.body) for row in rows]

    def of_texts(example: bool) -> Segment:
        chosen = [(row, count) for row, count in zip(rows, counts, strict=True) if row.example == example]
        ids, types = [row.id for row, _ in chosen], [type_number(row.type) for row, _ in chosen]
        columns = {"ids": np.array(ids), "types": np.array(types)}
        return segment_of([count for _, count in chosen], query_words, columns, example=example)

    def weights(frequencies: Mapping[str, int], size: int) -> dict[str, float]:
        return bm25.idf_weights(frequencies, size, lambda: average_idf(counts, past, size))

    segments = [of_texts(example=True), past.segment(query_words), of_texts(example=False)]
    matches = index.search(segments, query, weights, least_score=step.least_score, top_k=step.top_k_hits)
    return hits_of(matches)[: step.top_k_hits]


def average_idf(counts: Sequence[Counter[str]], past: Sealed, size: int) -> float:
    """The mean idf of all words of some texts and of the sealed segments."""
    new = Counter(word for text in counts for word in text)
    return bm25.average_idf(bm25.add_frequencies(past.histogram(), past.frequencies(new), new), size)


def seal(conn: Connection, trace_id: int, before: int) -> None:
    """Index the blocks below `before` in whole segments. The trace must be locked."""
    while True:
        past = sealed(conn, trace_id, before)
        values = {"trace": trace_id, "first": past.end, "types": list(RETRIEVABLE)}
        end = sql.run(conn, "search/segment_end", **values, before=before, blocks=SEGMENT_BLOCKS).scalar_one_or_none()
        if end is None:
            return
        insert_segment(conn, past, trace_id, end, sql.run(conn, "search/segment_blocks", **values, end=end).all())


def insert_segment(conn: Connection, past: Sealed, trace_id: int, end: int, rows: Sequence[Any]) -> None:
    """Write the segment of rows (id, type, body) that follows the sealed ones."""
    counts = [word_counts(row.body) for row in rows]
    lists = PostingLists(counts)
    words = lists.words
    new = {word: posting.frequency() for word, posting in lists.postings(words).items()}
    old = past.frequencies(words)
    documents = [(row.id, text.total(), RETRIEVABLE.index(row.type)) for row, text in zip(rows, counts, strict=True)]
    spread = pack_histogram(bm25.add_frequencies(past.histogram(), old, new))
    values = {"end": end, "documents": np.array(documents, DOCUMENT).tobytes(), "spread": spread}
    sql.run(conn, "search/insert_trace_segment", trace_id=trace_id, number=past.segments, **values)
    pairs = np.stack([lists.positions + past.segments * SEGMENT_BLOCKS, lists.counts], axis=1)
    blocks = [pack_pairs(pairs[lists.rows(word)]) for word in words]
    frequencies = [old.get(word, 0) + new[word] for word in words]
    postings = {"words": words, "documents": frequencies, "blocks": blocks}
    sql.run(conn, "search/insert_trace_postings", trace=trace_id, segment=past.segments, **postings)
