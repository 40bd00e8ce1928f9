"""BM25 over what one trace has left behind and the examples (WEAVE section 7).

A trace may leave ten thousand blocks and more behind. Reading them all for every query would make each tick dearer
than the one before, so they are indexed, in segments of `SEGMENT` blocks: a row of `postings` says for one word in
which blocks of one segment it stands. A query reads the rows of its own words, and the text of what is in no
segment yet: of less than one segment, and of the examples.

Segments are made when a query is saved, under its trace's lock, of blocks that have left the window. So recording
a block costs nothing more; as segments depend on the trace's blocks alone, they can be made again at any time; and
equal traces give equal scores, whatever else is being written (the corpus index can't say that of itself).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weavegen.kernel.steps import Hit, Retrieve
from weavegen.search import bm25
from weavegen.search.bm25 import K1, PICKED, Spread, counted
from weavegen.search.documents import RECALLABLE
from weavegen.search.postings import pack_pairs, pack_spread, unpack_pairs, unpack_spread
from weavegen.store import models as m
from weavegen.trace.query import Query

BLOCKS, EXAMPLES, SEGMENTS, POSTINGS = map(m.table, (m.Block, m.Example, m.Segment, m.Posting))
SEGMENT = 128
"""Blocks of a segment. With fewer, a common word has more rows to be read; with more, more text is read."""

DOCUMENT = np.dtype([("id", "<i8"), ("length", "<u4"), ("type", "u1")])
"""A block in `segments.documents`: its id, its words, its type's place in RECALLABLE."""


@dataclass(frozen=True)
class Sealed:
    """The segments of a trace that end before a query's cutoff; none by default."""

    conn: sa.Connection | None = None
    trace_id: int = 0
    segments: int = 0
    end: int = 0
    """Index in the trace behind their last block."""
    documents: NDArray[Any] = field(default_factory=lambda: np.zeros(0, DOCUMENT))

    def rows(self, query: str, words: Collection[str] = ()) -> Sequence[Any]:
        """What a statement of this module finds about some words in these segments."""
        if self.conn is None:
            return []
        values = {"trace": self.trace_id, "segments": self.segments, "words": list(words)}
        return self.conn.execute(sa.text(query), values).all()

    def postings(self, words: Collection[str]) -> dict[str, NDArray[Any]]:
        """Of each word that there is, rows (position in the index, times that it stands there)."""
        return {row.word: unpack_pairs(row.blocks) for row in self.rows(OF_WORDS, words)}

    def holding(self, words: Collection[str]) -> dict[str, int]:
        """In how many blocks each word stands, of those that there are."""
        return {row.word: row.documents for row in self.rows(HOLDING, words)}

    def spread(self) -> Spread:
        """How many words stand in so many blocks."""
        return next((unpack_spread(row.spread) for row in self.rows(SPREAD)), Counter())


OPEN = """
select count(*) as segments, max("end") as "end", string_agg(documents, '' order by number) as documents
from segments where trace_id = :trace and "end" <= :before
"""
OF_WORDS = """
select word, string_agg(blocks, '' order by segment) as blocks from postings
where trace_id = :trace and word = any(:words) and segment < :segments group by word
"""
HOLDING = """
select word, documents from unnest(cast(:words as text[])) as w(word) cross join lateral (
  select documents from postings
  where trace_id = :trace and postings.word = w.word and segment < :segments order by segment desc limit 1
) p
"""
SPREAD = "select spread from segments where trace_id = :trace and number = :segments - 1"


def sealed(conn: sa.Connection, trace_id: int, before: int) -> Sealed:
    """What is indexed of a trace below a cutoff."""
    row = conn.execute(sa.text(OPEN), {"trace": trace_id, "before": before}).one()
    if row.segments == 0:
        return Sealed()
    return Sealed(conn, trace_id, row.segments, row.end, np.frombuffer(row.documents, DOCUMENT))


def search(conn: sa.Connection, trace_id: int, query: Query, step: Retrieve) -> list[Hit]:
    """What a query finds, best first: `step.top_k_hits` hits at most, none below `step.least_score`."""
    past = sealed(conn, trace_id, step.before)
    own = unsealed(trace_id, past.end, step.before).add_columns(sa.false().label("example"))
    examples = sa.select(EXAMPLES.c.id, EXAMPLES.c.type, EXAMPLES.c.body, sa.true().label("example"))
    return rank(conn.execute(sa.union_all(own, examples)).all(), query, step, past)


def unsealed(trace_id: int, first: int, before: int) -> sa.Select[Any]:
    """Blocks (id, type, body) that can be recalled, of those with an index in [first, before)."""
    return sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.body).where(
        BLOCKS.c.trace_id == trace_id,
        BLOCKS.c.index >= first,
        BLOCKS.c.index < before,
        BLOCKS.c.type.in_(RECALLABLE),
    )


def rank(rows: Sequence[Any], query: Query, step: Retrieve, past: Sealed | None = None) -> list[Hit]:
    """Score rows (id, type, body, example) and what is indexed, and keep what the query allows.

    How rare a word is, is counted over all of them: a type restriction narrows what is found, not what is known.
    """
    past = past or Sealed()
    read = [counted(row.body) for row in rows]
    indexed, size = len(past.documents), len(past.documents) + len(rows)
    if not size:
        return []
    postings = past.postings({*query.words, *query.unwanted})
    times = {}  # how often each word of the query stands in each text; what is indexed comes first
    for word in {*query.words, *query.unwanted}:
        times[word] = np.zeros(size, int)
        if word in postings:
            times[word][postings[word][:, 0]] = postings[word][:, 1]
        times[word][indexed:] = [found[word] for found in read]

    lengths = np.concatenate([past.documents["length"], [found.total() for found in read]]).astype(int)
    average_length = int(lengths.sum()) / size
    damping = bm25.damping(lengths.astype(float), average_length)
    holding = {word: int(np.count_nonzero(times[word])) for word in query.words}
    worth = bm25.worth(sorted(holding), holding, size, lambda: average_rarity(read, past, size))
    scores = np.zeros(size)
    for word, asked in Counter(query.words).items():
        scores += asked * worth[word] * (times[word] * (K1 + 1) / (times[word] + damping))

    fits = np.ones(indexed, bool)  # what `allowed` says of the texts that are read
    if query.type is not None:
        fits &= past.documents["type"] == (RECALLABLE.index(query.type) if query.type in RECALLABLE else -1)
    for word in query.unwanted:
        fits &= times[word][:indexed] == 0
    if query.wanted:
        fits &= np.any([times[word][:indexed] > 0 for word in query.wanted], axis=0)
    fits = np.concatenate(
        [fits, [allowed(query, row.type, set(found)) for row, found in zip(rows, read, strict=True)]]
    ).astype(bool)

    # Among equals the newest block first, and blocks before examples.
    ids = np.concatenate([past.documents["id"], [row.id for row in rows]]).astype(int)
    example = np.concatenate([np.zeros(indexed, bool), [row.example for row in rows]]).astype(bool)
    order = np.lexsort((-ids[fits], example[fits], -scores[fits]))
    picked = np.flatnonzero(fits)[order[: max(PICKED, 2 * step.top_k_hits)]].tolist()
    counts = [{word: int(times[word][n]) for word in worth} for n in picked]
    exact = bm25.scored(query.words, counts, lengths[picked], average_length, worth).tolist()
    hits = [
        Hit(id=int(ids[n]), example=bool(example[n]), score=score)
        for n, score in zip(picked, exact, strict=True)
        if score >= step.least_score
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.example, -hit.id))[: step.top_k_hits]


def allowed(query: Query, type: str, found: set[str]) -> bool:
    """Whether a text of this type with these words may be a hit."""
    if query.type is not None and type != query.type:
        return False
    return found.isdisjoint(query.unwanted) and (not query.wanted or not found.isdisjoint(query.wanted))


def average_rarity(read: Sequence[Counter[str]], past: Sealed, size: int) -> float:
    """Over all words of the texts that were read and of what is indexed."""
    new = Counter(word for found in read for word in found)
    return bm25.average_rarity(spread_with(past.spread(), past.holding(new), new), size)


def spread_with(spread: Spread, held: dict[str, int], new: Counter[str]) -> Spread:
    """How many words stand in so many texts, once the words of `new` stand in so many more than `held` says."""
    for word, texts in new.items():
        before = held.get(word, 0)
        if before:
            spread[before] -= 1
        spread[before + texts] += 1
    return spread


INSERT_POSTINGS = """
insert into postings (trace_id, segment, word, documents, blocks)
select :trace, :segment, *
from unnest(cast(:words as text[]), cast(:documents as bigint[]), cast(:blocks as bytea[]))
"""


def seal(conn: sa.Connection, trace_id: int, before: int) -> None:
    """Index what lies before `before`, in whole segments. The trace must be locked."""
    while True:
        past = sealed(conn, trace_id, before)
        waiting = unsealed(trace_id, past.end, before).order_by(BLOCKS.c.index)
        last = waiting.with_only_columns(BLOCKS.c.index).offset(SEGMENT - 1).limit(1)
        if (index := conn.execute(last).scalar_one_or_none()) is None:
            return
        rows = conn.execute(waiting.limit(SEGMENT)).all()
        read = [counted(row.body) for row in rows]
        found: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for position, counts in enumerate(read, past.segments * SEGMENT):
            for word, times in counts.items():
                found[word].append((position, times))
        held, new = past.holding(found), Counter({word: len(pairs) for word, pairs in found.items()})
        spread = spread_with(past.spread(), held, new)
        documents = [
            (row.id, counts.total(), RECALLABLE.index(row.type)) for row, counts in zip(rows, read, strict=True)
        ]
        values = {
            "trace_id": trace_id,
            "number": past.segments,
            "end": index + 1,
            "documents": np.array(documents, DOCUMENT).tobytes(),
            "spread": pack_spread(spread),
        }
        conn.execute(sa.insert(SEGMENTS).values(values))
        listed = sorted(found)
        conn.execute(
            sa.text(INSERT_POSTINGS),
            {
                "trace": trace_id,
                "segment": past.segments,
                "words": listed,
                "documents": [held.get(word, 0) + new[word] for word in listed],
                "blocks": [pack_pairs(found[word]) for word in listed],
            },
        )
