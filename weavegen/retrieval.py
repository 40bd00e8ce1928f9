"""BM25 over what a trace has left behind and the examples, with rank-bm25 as the scorer (WEAVE section 7)."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from rank_bm25 import BM25Okapi

from weavegen.blocks import BlockType
from weavegen.query import Query, parse, words
from weavegen.steps import Hit, Retrieve
from weavegen.store import models as m

BLOCKS, EXAMPLES, RETRIEVALS, HITS, TRACES = map(
    m.table, (m.Block, m.Example, m.Retrieval, m.RetrievalHit, m.Trace)
)
RECALLABLE = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
"""Blocks worth recalling: what the model wrote, and what went wrong."""
REMEMBERED = 500
"""Blocks of other traces that are looked through, those with the best scores."""


def search(conn: sa.Connection, trace_id: int, step: Retrieve) -> list[Hit]:
    """What a query finds, best first: `step.considered` hits at most, none below `step.least_score`."""
    query = parse(step.query)
    if query is None:
        return []
    own = sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.body, sa.false().label("example")).where(
        BLOCKS.c.trace_id == trace_id, BLOCKS.c.index < step.before, BLOCKS.c.type.in_(RECALLABLE)
    )
    sources = [own] if step.memory is None else [own, others(trace_id, step.memory)]
    examples = sa.select(EXAMPLES.c.id, EXAMPLES.c.type, EXAMPLES.c.body, sa.true().label("example"))
    return rank(conn.execute(sa.union_all(*sources, examples)).all(), query, step)


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


def rank(rows: Sequence[Any], query: Query, step: Retrieve) -> list[Hit]:
    """Score rows (id, type, body, example) and keep what the query allows.

    How rare a word is, is counted over all rows: a type restriction narrows what is found, not what is known.
    """
    if not rows:
        return []
    corpus = [words(row.body) or [""] for row in rows]
    hits = [
        Hit(id=row.id, example=row.example, score=float(score))
        for score, row, found in zip(BM25Okapi(corpus).get_scores(query.words), rows, corpus, strict=True)
        if score >= step.least_score and allowed(query, row.type, set(found))
    ]
    # Among equals the newest block first, and blocks before examples.
    return sorted(hits, key=lambda hit: (-hit.score, hit.example, -hit.id))[: step.considered]


def allowed(query: Query, type: str, found: set[str]) -> bool:
    """Whether a text of this type with these words may be a hit."""
    if query.type is not None and type != query.type:
        return False
    return found.isdisjoint(query.unwanted) and (not query.wanted or not found.isdisjoint(query.wanted))


def save(conn: sa.Connection, trace_id: int, step_id: int, step: Retrieve, found: Sequence[Hit]) -> None:
    """Keep the query, what it could see and what it found."""
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
