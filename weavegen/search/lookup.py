"""A person's query: hits with what they are and where they stand."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.search import corpus_search
from weavegen.search.documents import RECALLABLE
from weavegen.search.scope import Scope
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import Query, parse, restricted


@dataclass(frozen=True)
class Found:
    """A hit, for people."""

    score: float
    """BM25."""
    job: int | None
    """None, like the next four: it is an example."""
    trace: int | None
    index: int | None
    """Position in the trace."""
    block: int | None
    """blocks.id."""
    recorded: datetime.datetime | None
    example: int | None
    """examples.id; None: it is a block."""
    type: str
    body: str


TEXTS = sa.text(
    """
    select b.id, false as example, t.job_id as job, b.trace_id as trace, b.index as place,
      b.created_at as recorded, b.type, b.body
    from blocks b join traces t on t.id = b.trace_id where b.id = any(:blocks)
    union all
    select id, true, null, null, null, null, type, body from examples where id = any(:examples)
    """
)


def lookup(
    conn: sa.Connection,
    text: str,
    scope: Scope,
    *,
    type: str | None = None,
    least_score: float = 0.0,
    most: int = 10,
) -> list[Found]:
    """The best hits in a scope, best first. Raises UsageError where the query or the scope can't be searched."""
    query = asked(text, type)
    for table, id in (("trace", scope.trace_id), ("job", scope.job_id)):
        there = sa.text(f"select exists (select from {table}s where id = :id)")
        if id is not None and not conn.execute(there, {"id": id}).scalar_one():
            raise UsageError(
                f"there is no {table} {id}: `weavegen status` lists the jobs, with a number its traces"
            )
    hits = corpus_search.search(conn, query, scope, least_score=least_score, most=most)
    ids = {
        "blocks": [hit.id for hit in hits if not hit.example],
        "examples": [hit.id for hit in hits if hit.example],
    }
    rows = {(row.example, row.id): row for row in conn.execute(TEXTS, ids)}
    return [
        Found(
            score=hit.score,
            job=row.job,
            trace=row.trace,
            index=row.place,
            block=None if hit.example else hit.id,
            recorded=row.recorded,
            example=hit.id if hit.example else None,
            type=row.type,
            body=row.body,
        )
        for hit in hits
        if (row := rows.get((hit.example, hit.id))) is not None
    ]


def asked(text: str, type: str | None) -> Query:
    """A query, restricted to a type where one is given. Raises UsageError."""
    if type is not None:
        if type not in RECALLABLE:
            raise UsageError(f"blocks of type {type} are not indexed: choose of {', '.join(RECALLABLE)}")
        text = restricted(text, BlockType(type))
    query = parse(text)
    if query is None:
        raise UsageError(
            "this is no query: give words, with + before those of which one must be in a hit and - before those "
            'that may not, and type:NAME; for example  weavegen search "+lantern bridge -dragon type:action"'
        )
    return query
