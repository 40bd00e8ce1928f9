"""The reading of the corpus index: all traces' blocks, and the examples.

The index is a row of `corpus_segments` for some thousand blocks, and for each word in them a row of
`corpus_postings`; neither ever changes (indexing.py makes them), so a process keeps what it has read lately. What
waits in `corpus_queue` to be sealed is read as text, and so are the examples.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import sqlalchemy as sa

from weavegen.search import bm25, documents
from weavegen.search.cache import Cache, cache_of
from weavegen.search.documents import COLUMNS, Columns, Document, driver_of
from weavegen.search.postings import MOST_TIMES, Posting, unpack

MOST_QUEUED = 2048
"""Texts of the queue that a query reads, the newest: more wait only while the indexer is behind or down."""


class Part(Protocol):
    """Some of the texts."""

    size: int
    example: bool
    columns: Columns

    def posting(self, word: str) -> Posting | None:
        """Where a word stands in it; None: nowhere."""


class Texts:
    """Texts that were read: those of the queue, or the examples."""

    def __init__(self, read: Sequence[Document], *, example: bool) -> None:
        self.size, self.example = len(read), example
        self.columns = documents.columns(read)
        self.counts = [document.counts for document in read]
        self._postings: dict[str, Posting | None] = {}

    def posting(self, word: str) -> Posting | None:
        if word not in self._postings:
            times = np.array([counts.get(word, 0) for counts in self.counts])
            found = Posting(None, np.minimum(times, MOST_TIMES).astype(np.uint8)) if times.any() else None
            self._postings[word] = found
        return self._postings[word]


class Segment:
    """A segment of the index, as far as it has been read."""

    def __init__(self, id: int, size: int) -> None:
        self.id, self.size, self.example = id, size, False
        self.columns: Columns = {}
        self.postings: dict[str, Posting | None] = {}

    def posting(self, word: str) -> Posting | None:
        return self.postings[word]


OPEN = sa.text(
    """
    select false as queued, level, id, documents from corpus_segments where retired_at is null
    union all
    select true, 0, block_id, 1 from (select block_id from corpus_queue order by block_id desc limit :most) q
    order by queued, level desc, id -- the oldest first: what is merged is older than what is not
    """
)
POSTINGS = """
select p.segment, p.word, p.documents, p.data
from unnest(%s::bigint[], %s::text[]) w(segment, word) join corpus_postings p using (segment, word)
"""


class Corpus:
    """The index as one statement saw it, and the reading of it."""

    def __init__(self, conn: sa.Connection) -> None:
        self._conn = conn
        self._cache: Cache = cache_of(conn.engine)
        rows = conn.execute(OPEN, {"most": MOST_QUEUED}).all()
        self.segments = [Segment(row.id, row.documents) for row in rows if not row.queued]
        self._queued = [row.id for row in rows if row.queued]

    def queue(self) -> Texts:
        """The blocks that are in no segment yet."""
        known = self._cache.get(("queued", id) for id in self._queued)
        if unknown := [id for id in self._queued if ("queued", id) not in known]:
            for document in documents.read(self._conn, unknown):
                self._keep(known, ("queued", document.id), document)
        return Texts([known["queued", id] for id in self._queued if ("queued", id) in known], example=False)

    def examples(self) -> Texts:
        """The examples."""
        ids = self._conn.execute(sa.text("select id from examples order by id")).scalars().all()
        known = self._cache.get(("example", id) for id in ids)
        if unknown := [id for id in ids if ("example", id) not in known]:
            query = sa.text("select id, type, body from examples where id = any(:ids)")
            for row in self._conn.execute(query, {"ids": unknown}):
                type = documents.number(row.type)
                example = Document(row.id, 0, 0, 0, type, np.nan, 0.0, bm25.counted(row.body))
                self._keep(known, ("example", row.id), example)
        return Texts([known["example", id] for id in ids if ("example", id) in known], example=True)

    def _keep(self, known: dict[Any, Any], key: tuple[str, int], document: Document) -> None:
        known[key] = document
        self._cache.put(key, document, 100 * len(document.counts))

    def read_columns(self, segments: Iterable[Segment], names: Iterable[str]) -> None:
        """Have these columns in these segments."""
        wanted = [(one, name) for one in segments for name in names if name not in one.columns]
        known = self._cache.get((one.id, name) for one, name in wanted)
        missing = {one.id: one for one, name in wanted if (one.id, name) not in known}
        if missing:
            unknown = sorted({name for one, name in wanted if (one.id, name) not in known})
            query = f"select id, {', '.join(unknown)} from corpus_segments where id = any(%s)"
            with driver_of(self._conn).cursor(binary=True) as cursor:
                for id, *columns in cursor.execute(query, (list(missing),)):
                    for name, data in zip(unknown, columns, strict=True):
                        known[id, name] = np.frombuffer(data, COLUMNS[name])
                        self._cache.put((id, name), known[id, name], len(data))
        for one, name in wanted:
            one.columns[name] = known[one.id, name]

    def read_postings(self, segments: Iterable[Segment], words: Iterable[str]) -> None:
        """Have the postings of these words in these segments."""
        wanted = [(one, word) for one in segments for word in words if word not in one.postings]
        known = self._cache.get(("in", one.id, word) for one, word in wanted)
        missing = {(one.id, word): one for one, word in wanted if ("in", one.id, word) not in known}
        if missing:
            found: dict[tuple[int, str], tuple[Posting | None, int]] = dict.fromkeys(missing, (None, 0))
            with driver_of(self._conn).cursor(binary=True) as cursor:
                ids, listed = zip(*missing, strict=True)
                for id, word, holding, data in cursor.execute(POSTINGS, (list(ids), list(listed))):
                    found[id, word] = unpack(data, holding, missing[id, word].size), len(data)
            for (id, word), (posting, size) in found.items():
                known["in", id, word] = posting
                self._cache.put(("in", id, word), posting, size)
        for one, word in wanted:
            one.postings[word] = known["in", one.id, word]

    def average_rarity(self, size: int) -> float:
        """The mean rarity of all words among `size` texts; see Scope."""
        row = self._conn.execute(sa.text("select documents, average_rarity from corpus_statistics")).one()
        if not row.documents:
            return 0.0
        return max(0.0, float(row.average_rarity) + float(np.log(size / row.documents)))
