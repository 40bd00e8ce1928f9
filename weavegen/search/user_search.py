"""A user's query: hits with their texts and places."""

import datetime
from dataclasses import dataclass

import sqlalchemy as sa

from weavegen import sql
from weavegen.errors import UsageError
from weavegen.search import corpus_index
from weavegen.search.corpus_index import Scope
from weavegen.search.documents import RETRIEVABLE
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import Query, parse, restricted


@dataclass(frozen=True)
class FoundText:
    """A hit with its text. `job`, `trace`, `index` and `recorded` are None for an example."""

    score: float
    """BM25."""
    block: int | None
    """blocks.id. None for an example."""
    example: int | None
    """examples.id. None for a block."""
    job: int | None
    trace: int | None
    index: int | None
    """Position in the trace."""
    recorded: datetime.datetime | None
    type: str
    body: str


def search_texts(
    conn: sa.Connection,
    text: str,
    scope: Scope,
    *,
    type: str | None = None,
    least_score: float = 0.0,
    top_k: int = 10,
) -> list[FoundText]:
    """The best hits in a scope, best first. Raises UsageError for an invalid query, type, job or trace."""
    query = parse_query(text, type)
    for table, id in (("trace", scope.trace_id), ("job", scope.job_id)):
        exists = sql.load("search/exists", table=f"{table}s")
        if id is not None and not conn.execute(exists, {"id": id}).scalar_one():
            raise UsageError(f"there is no {table} {id}: `weavegen status` lists the jobs, with a number its traces")
    hits = corpus_index.search(conn, query, scope, least_score=least_score, top_k=top_k)
    blocks, examples = ([hit.id for hit in hits if hit.example is example] for example in (False, True))
    texts = sql.run(conn, "search/texts", blocks=blocks, examples=examples)
    rows = {(row.example is not None, row.block or row.example): row for row in texts}
    found = [(hit.score, rows.get((hit.example, hit.id))) for hit in hits]
    return [FoundText(score, *row) for score, row in found if row is not None]


def parse_query(text: str, type: str | None) -> Query:
    """Parse a query, restricted to a type if one is given. Raises UsageError."""
    if type is not None:
        if type not in RETRIEVABLE:
            raise UsageError(f"blocks of type {type} are not indexed: choose one of the types {', '.join(RETRIEVABLE)}")
        text = restricted(text, BlockType(type))
    query = parse(text)
    if query is None:
        raise UsageError(
            "this query can't be parsed: give words; at least one of the words marked with + must be in a hit, "
            'words marked with - must not, and type:NAME chooses a type; for example  weavegen search "+lantern '
            'bridge -dragon type:action"'
        )
    return query
