"""BM25 over what a trace has left behind and the examples, with rank-bm25's formula (WEAVE section 7).

A trace may leave ten thousand blocks and more behind. Reading them all for every query would make each tick dearer
than the one before, so they are indexed, in segments of `SEGMENT` blocks: a row of `postings` says for one word in
which blocks of one segment it stands. A query reads the rows of its own words, and the text of what is in no
segment yet: of less than one segment, and of the examples.

Segments are made when a query is saved, under its trace's lock, of blocks that have left the window. So recording
a block costs nothing more; and as segments depend on the trace's blocks alone, they can be made again at any time.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weavegen.blocks import BlockType
from weavegen.query import Query, parse, words
from weavegen.steps import Hit, Retrieve
from weavegen.store import models as m

BLOCKS, EXAMPLES, RETRIEVALS, HITS, TRACES, SEGMENTS, POSTINGS = map(
    m.table, (m.Block, m.Example, m.Retrieval, m.RetrievalHit, m.Trace, m.Segment, m.Posting)
)
RECALLABLE = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
"""Blocks worth recalling: what the model wrote, and what went wrong. Segments hold their places in this order."""
REMEMBERED = 500
"""Blocks of other traces that are looked through, those with the best scores."""
SEGMENT = 128
"""Blocks of a segment. With fewer, a common word has more rows to be read; with more, more text is read."""
K1, B, EPSILON = 1.5, 0.75, 0.25
"""BM25's numbers, as rank-bm25 has them: how soon a word that is repeated counts no more, how much a text's length
counts, and what part of the average a word is worth that most texts have."""

DOCUMENT = np.dtype([("id", "<i8"), ("length", "<u4"), ("type", "u1")])
"""A block in `segments.documents`: its id, its words, its type's place in RECALLABLE."""
PAIR = np.dtype("<u4")
"""In pairs: `postings.blocks` (position in the index, times that the word stands there), and `segments.spread`
(number of blocks, words that stand in so many)."""


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
        """Of each word that there is, rows (position, times)."""
        return {row.word: np.frombuffer(row.blocks, PAIR).reshape(-1, 2) for row in self.rows(OF_WORDS, words)}

    def holding(self, words: Collection[str]) -> dict[str, int]:
        """In how many blocks each word stands, of those that there are."""
        return {row.word: row.documents for row in self.rows(HOLDING, words)}

    def spread(self) -> Counter[int]:
        """How many words stand in so many blocks."""
        counted = [np.frombuffer(row.spread, PAIR).reshape(-1, 2).tolist() for row in self.rows(SPREAD)]
        return Counter({holding: number for pairs in counted for holding, number in pairs})


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


def search(conn: sa.Connection, trace_id: int, step: Retrieve) -> list[Hit]:
    """What a query finds, best first: `step.considered` hits at most, none below `step.least_score`."""
    query = parse(step.query)
    if query is None:
        return []
    past = sealed(conn, trace_id, step.before)
    own = unsealed(trace_id, past.end, step.before).add_columns(sa.false().label("example"))
    sources = [own] if step.memory is None else [own, others(trace_id, step.memory)]
    examples = sa.select(EXAMPLES.c.id, EXAMPLES.c.type, EXAMPLES.c.body, sa.true().label("example"))
    return rank(conn.execute(sa.union_all(*sources, examples)).all(), query, step, past)


def unsealed(trace_id: int, first: int, before: int) -> sa.Select[Any]:
    """Blocks (id, type, body) that can be recalled, of those with an index in [first, before)."""
    return sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.body).where(
        BLOCKS.c.trace_id == trace_id,
        BLOCKS.c.index >= first,
        BLOCKS.c.index < before,
        BLOCKS.c.type.in_(RECALLABLE),
    )


def others(trace_id: int, score: float) -> sa.Select[Any]:
    """Blocks of the job's other traces with this raw score at least, but for those that failed."""
    job = sa.select(TRACES.c.job_id).where(TRACES.c.id == trace_id).scalar_subquery()
    traces = sa.select(TRACES.c.id).where(TRACES.c.job_id == job, TRACES.c.id != trace_id)
    best = (
        sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.body)
        .where(
            BLOCKS.c.trace_id.in_(traces),
            BLOCKS.c.type.in_(RECALLABLE),
            BLOCKS.c.score >= score,
            BLOCKS.c.compiles,
            BLOCKS.c.ran.is_not(False),
        )
        .order_by(BLOCKS.c.score.desc(), BLOCKS.c.id)
        .limit(REMEMBERED)
        .subquery()
    )
    return sa.select(best.c.id, best.c.type, best.c.body, sa.false().label("example"))


def rank(rows: Sequence[Any], query: Query, step: Retrieve, past: Sealed | None = None) -> list[Hit]:
    """Score rows (id, type, body, example) and what is indexed, and keep what the query allows.

    How rare a word is, is counted over all of them: a type restriction narrows what is found, not what is known.
    """
    past = past or Sealed()
    read = [Counter(words(row.body) or [""]) for row in rows]
    indexed, size = len(past.documents), len(past.documents) + len(rows)
    if not size:
        return []
    postings = past.postings({*query.words, *query.unwanted})
    times = {}  # how often each word of the query stands in each text; what is indexed comes first
    for word in {*query.words, *query.unwanted}:
        times[word] = np.zeros(size)
        if word in postings:
            times[word][postings[word][:, 0]] = postings[word][:, 1]
        times[word][indexed:] = [found[word] for found in read]

    lengths = np.concatenate([past.documents["length"], [found.total() for found in read]])
    damping = K1 * (1 - B + B * lengths / (lengths.sum() / size))
    worth = {word: rarity(int(np.count_nonzero(times[word])), size) for word in query.words}
    if min(worth.values()) < 0:
        floor = EPSILON * average_rarity(read, past, size)
        worth = {word: value if value >= 0 else floor for word, value in worth.items()}
    scores = np.zeros(size)
    for word in query.words:
        if times[word].any():
            scores += worth[word] * (times[word] * (K1 + 1) / (times[word] + damping))

    fits = np.ones(indexed, bool)  # what `allowed` says of the texts that are read
    if query.type is not None:
        fits &= past.documents["type"] == (RECALLABLE.index(query.type) if query.type in RECALLABLE else -1)
    for word in query.unwanted:
        fits &= times[word][:indexed] == 0
    if query.wanted:
        fits &= np.any([times[word][:indexed] > 0 for word in query.wanted], axis=0)
    fits = np.concatenate(
        [fits, [allowed(query, row.type, set(found)) for row, found in zip(rows, read, strict=True)]]
    )
    fits = fits.astype(bool) & (scores >= step.least_score)

    # Among equals the newest block first, and blocks before examples.
    ids = np.concatenate([past.documents["id"], [row.id for row in rows]]).astype(int)
    example = np.concatenate([np.zeros(indexed, bool), [row.example for row in rows]]).astype(bool)
    best = np.lexsort((-ids[fits], example[fits], -scores[fits]))[: step.considered]
    places = np.flatnonzero(fits)[best]
    return [Hit(id=int(ids[n]), example=bool(example[n]), score=float(scores[n])) for n in places]


def allowed(query: Query, type: str, found: set[str]) -> bool:
    """Whether a text of this type with these words may be a hit."""
    if query.type is not None and type != query.type:
        return False
    return found.isdisjoint(query.unwanted) and (not query.wanted or not found.isdisjoint(query.wanted))


def rarity(holding: int, size: int) -> float:
    """Inverse document frequency of a word that stands in `holding` of `size` texts; below 0 if in most."""
    return math.log(size - holding + 0.5) - math.log(holding + 0.5)


def average_rarity(read: Sequence[Counter[str]], past: Sealed, size: int) -> float:
    """Over all words of the texts that were read and of what is indexed."""
    new = Counter(word for found in read for word in found)
    spread = spread_with(past.spread(), past.holding(new), new)
    # fsum does not depend on the order of its terms, so scores do not depend on how much is indexed.
    return math.fsum(n * rarity(holding, size) for holding, n in spread.items()) / spread.total()


def spread_with(spread: Counter[int], held: dict[str, int], new: Counter[str]) -> Counter[int]:
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
        read = [Counter(words(row.body) or [""]) for row in rows]
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
            "spread": np.array([pair for pair in spread.items() if pair[1]], PAIR).tobytes(),
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
                "blocks": [np.array(found[word], PAIR).tobytes() for word in listed],
            },
        )


def save(conn: sa.Connection, trace_id: int, step_id: int, step: Retrieve, found: Sequence[Hit]) -> None:
    """Keep the query, what it could see and what it found; index what it could see. The trace must be locked."""
    values = {"trace_id": trace_id, "step_id": step_id, "query": step.query, "before": step.before}
    values["least_score"] = step.least_score
    id = conn.execute(sa.insert(RETRIEVALS).values(values).returning(RETRIEVALS.c.id)).scalar_one()
    rows = [
        {
            "retrieval_id": id,
            "rank": rank,
            "block_id": None if hit.example else hit.id,
            "example_id": hit.id if hit.example else None,
            "score": hit.score,
            "used": rank <= step.limit,
        }
        for rank, hit in enumerate(found, 1)
    ]
    if rows:
        conn.execute(sa.insert(HITS), rows)
    seal(conn, trace_id, step.before)
