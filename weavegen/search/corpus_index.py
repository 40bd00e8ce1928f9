"""Search in the corpus index: the blocks of all traces, and the examples, or a part of them.

A segment of the index is a row of `corpus_segments` and, for each word in it, a row of `corpus_postings`. These
rows never change, so a process caches them; indexing.py makes them. Blocks that still wait in `corpus_queue` and
the examples are read as text.
"""

import datetime
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Literal

import numpy as np

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import Hit
from weavegen.search import bm25, documents, index
from weavegen.search.cache import cache_of
from weavegen.search.documents import COLUMNS, Columns, Document
from weavegen.search.index import Segment, hits_of, segment_of
from weavegen.search.postings import MAX_COUNT, Marks, unpack
from weavegen.trace.query import Query

MAX_QUEUED = 2048
"""A query reads only the newest texts of the queue. More wait only if the indexer is behind or stopped."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which texts a query searches; by default all.

    BM25's statistics (number of texts, mean length, document frequencies) cover the blocks of `job_id` or
    `trace_id`, or all blocks, and the examples if these are searched. Dropped blocks count until the next reindex.
    A fork's blocks include those that it shares with the trace it is a fork of. The other fields and the query's own
    filters restrict the hits and not the statistics.

    BM25 needs the average idf of all words if half of the texts or more hold a word of the query. It is taken from
    the whole index, plus the log of the scope's size over the index's: most words occur in one or two texts, so
    their idf grows with the log of the size.
    """

    job_id: int | None = None
    trace_id: int | None = None
    blocks: bool = True
    """False: search only the examples."""
    examples: bool = True
    until: datetime.datetime | None = None
    """Only blocks recorded before this time."""
    memory_of: int | None = None
    """A trace whose agent asks: of its own blocks, only those below index `before`, which have left its window; of
    other traces, only legal Python that did not fail and has at least the raw score `memory`."""
    before: int = 0
    memory: float = 0.0
    lineage: Sequence[tuple[int, int]] = ()
    """The rows of sql/lineage.sql for `trace_id` or `memory_of`. `search` reads them."""

    @property
    def columns(self) -> set[str]:
        """The names of the columns that `in_scope` and `allowed` read."""
        read_by = {"jobs": self.job_id, "recorded": self.until, "goods": self.memory_of}
        names = {name for name, value in read_by.items() if value is not None}
        return names | {"traces", "indexes"} if self.lineage else names

    def own(self, columns: Columns) -> Marks:
        """The blocks of a segment that belong to the trace, also those that it shares as a fork."""
        traces, indexes = columns["traces"], columns["indexes"]
        marks: Marks = np.any([(traces == trace) & (indexes < end) for trace, end in self.lineage], axis=0)
        return marks

    def in_scope(self, columns: Columns) -> Marks | None:
        """The blocks of a segment that the statistics cover. None: all."""
        if self.trace_id is not None:
            return self.own(columns)
        if self.job_id is None:
            return None
        marks: Marks = columns["jobs"] == self.job_id
        return marks if self.memory_of is None else marks | self.own(columns)

    def allowed(self, columns: Columns) -> Marks | None:
        """The blocks of a segment that pass `until` and `memory`. None: all."""
        marks = None if self.until is None else columns["recorded"] < self.until.timestamp()
        if self.memory_of is not None:
            good = np.where(self.own(columns), columns["indexes"] < self.before, columns["goods"] >= self.memory)
            marks = good if marks is None else marks & good
        return marks


def search(conn: Connection, query: Query, scope: Scope, *, least_score: float, top_k: int) -> list[Hit]:
    """The best `top_k` hits in a scope, best first, none below `least_score`. A hit holds one of the words."""
    trace = scope.trace_id if scope.memory_of is None else scope.memory_of
    scope = replace(scope, lineage=sql.run(conn, "search/lineage", trace=trace).all())
    corpus = Corpus(conn, query)
    segments = corpus.segments(scope)
    weights, wanted = corpus.idf_weights(segments), top_k
    while True:
        matches = index.search(segments, query, weights, least_score=least_score, top_k=wanted)
        corpus.read_columns([match.segment for match in matches if match.segment.id is not None], ["ids"])
        hits = existing(conn, hits_of(matches))
        if len(hits) >= top_k or len(matches) < wanted:
            return hits[:top_k]
        wanted *= 4  # dropped blocks took the places of others


def existing(conn: Connection, hits: Sequence[Hit], *, lock: bool = False) -> list[Hit]:
    """The hits whose texts still exist. With `lock`, traces can't drop them until the transaction ends."""
    query = sql.load("search/existing", lock="for key share" if lock else "")
    found = set(conn.execute(query, {"ids": [hit.id for hit in hits if not hit.example]}).scalars())
    return [hit for hit in hits if hit.example or hit.id in found]


class Corpus:
    """Reads, for one query, the index as one statement saw it."""

    def __init__(self, conn: Connection, query: Query) -> None:
        self._conn, self._cache = conn, cache_of(conn.database)
        self._query, self._words = query, sorted({*query.words, *query.unwanted})
        self._counts: list[Counter[str]] = []
        """Word counts of the texts that were read as text."""

    def segments(self, scope: Scope) -> list[Segment]:
        """The segments that have texts in a scope: the examples, then the blocks, the oldest first."""
        segments = []
        if scope.examples:
            ids = sql.run(self._conn, "search/example_ids").scalars()
            segments.append(self._from_texts(self._texts("examples", ids), example=True))
        if scope.blocks:
            rows = sql.run(self._conn, "search/corpus_parts", max_queued=MAX_QUEUED).all()
            stored = self._stored([Segment(row.documents, {}, {}, id=row.id) for row in rows if not row.queued], scope)
            queue = self._texts("blocks", [row.id for row in rows if row.queued])
            in_scope = scope.in_scope(documents.columns(queue))
            blocks = [*stored, self._from_texts(queue if in_scope is None else list(compress(queue, in_scope)))]
            for segment in blocks:
                segment.allowed = scope.allowed(segment.columns)
            segments += blocks
        return segments

    def _stored(self, segments: Sequence[Segment], scope: Scope) -> list[Segment]:
        """The stored segments that have texts in a scope, with the data that the query needs."""
        self.read_columns(segments, ["lengths", *sorted(scope.columns)])
        for segment in segments:
            segment.in_scope = scope.in_scope(segment.columns)
        segments = [segment for segment in segments if len(segment.lengths)]
        self._read_postings(segments)
        if self._query.type is not None:
            self.read_columns(segments, ["types"])
        return segments

    def idf_weights(self, segments: Sequence[Segment]) -> index.Weights:
        """Computes the idf weights of words in these segments; see Scope for the average idf."""

        def average(size: int) -> float:
            if all(segment.id is None for segment in segments):
                return bm25.average_idf(bm25.df_histogram(self._counts), size)
            row = sql.run(self._conn, "search/statistics").one()
            return max(0.0, row.average_rarity + float(np.log(size / row.documents))) if row.documents else 0.0

        return lambda frequencies, size: bm25.idf_weights(frequencies, size, lambda: average(size))

    def _from_texts(self, texts: list[Document], *, example: bool = False) -> Segment:
        counts = [document.counts for document in texts]
        self._counts += counts
        return segment_of(counts, self._words, documents.columns(texts), example=example, max_count=MAX_COUNT)

    def _texts(self, table: Literal["blocks", "examples"], ids: Sequence[int]) -> list[Document]:
        """The texts of a table with these ids, as far as they exist."""

        def read(missing: list[tuple[Any, int]]) -> Iterable[tuple[tuple[Any, int], Document, int]]:
            for document in documents.read(self._conn, [id for _, id in missing], table):
                yield (table, document.id), document, 100 * len(document.counts)

        found = self._cache.fetch([(table, id) for id in ids], read)
        return [found[table, id] for id in ids if (table, id) in found]

    def read_columns(self, segments: Iterable[Segment], names: Iterable[str]) -> None:
        """Give stored segments these columns."""

        def read(missing: list[tuple[int | None, str]]) -> Iterable[tuple[tuple[int | None, str], Any, int]]:
            columns = sorted({name for _, name in missing})
            query = sql.text("search/segment_columns").format(names=", ".join(columns))
            with self._conn.cursor(binary=True) as cursor:
                for id, *values in cursor.execute(query, (list({id for id, _ in missing}),)):
                    for name, data in zip(columns, values, strict=True):
                        yield (id, name), np.frombuffer(data, COLUMNS[name]), len(data)

        wanted = [(segment, name) for segment in segments for name in names if name not in segment.columns]
        found = self._cache.fetch({(segment.id, name): None for segment, name in wanted}, read)
        for segment, name in wanted:
            segment.columns[name] = found[segment.id, name]

    def _read_postings(self, segments: Sequence[Segment]) -> None:
        """Give stored segments the postings of the query's words."""
        sizes = {segment.id: segment.size for segment in segments}

        def read(missing: list[tuple[str, int | None, str]]) -> Iterable[tuple[Any, Any, int]]:
            absent = dict.fromkeys(missing)
            ids, words = [id for _, id, _ in missing], [word for _, _, word in missing]
            with self._conn.cursor(binary=True) as cursor:
                for id, word, frequency, data in cursor.execute(sql.text("search/corpus_postings"), (ids, words)):
                    del absent["in", id, word]
                    yield ("in", id, word), unpack(data, frequency, sizes[id]), len(data)
            yield from ((key, None, 0) for key in absent)

        found = self._cache.fetch([("in", id, word) for id in sizes for word in self._words], read)
        for segment in segments:
            segment.postings = {word: posting for word in self._words if (posting := found["in", segment.id, word])}
