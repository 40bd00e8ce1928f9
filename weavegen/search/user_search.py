"""A user's query: hits with their texts and places."""

from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.search import corpus_index
from weavegen.search.corpus_index import Scope
from weavegen.search.documents import RETRIEVABLE
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import Query, parse, restricted


def search_texts(
    conn: Connection, text: str, scope: Scope, *, type: str | None = None, least_score: float = 0.0, top_k: int = 10
) -> list[Any]:
    """The best hits in a scope as rows of sql/texts.sql. Raises UsageError for an invalid query, type, job or trace."""
    query = parse_query(text, type)
    for table, id in (("trace", scope.trace_id), ("job", scope.job_id)):
        exists = sql.load("search/exists", table=f"{table}s")
        if id is not None and not conn.execute(exists, {"id": id}).scalar_one():
            raise UsageError(f"there is no {table} {id}: `weavegen status` lists the jobs, with a number its traces")
    hits = corpus_index.search(conn, query, scope, least_score=least_score, top_k=top_k)
    columns = {f"{name}s": [getattr(hit, name) for hit in hits] for name in ("id", "example", "score")}
    return list(sql.run(conn, "search/texts", **columns))


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
