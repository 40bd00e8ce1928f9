"""Tools for the toolsmith's program: requests and their outcomes, users' preferences, the tool library.

They answer in JSON. The researcher's model does not know of them.
"""

from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import required
from weavegen.search.index import rank_texts
from weavegen.store import requests, tools

MAX_RESULTS = 20
MAX_TEXT_CHARS = 1_200
"""Longer texts of an answer are cut."""


def read_request(conn: Connection, trace_id: int, *, number: int) -> str:
    """The current text of a request. Raises UsageError."""
    return _json(_fields(requests.load(conn, number), "objective", "requirements", "constraints", "revision"))


def past_requests(conn: Connection, trace_id: int, *, query: str, number: int | None, limit: int) -> str:
    """Requests other than `number` by BM25, with their outcomes."""
    past = sql.run(conn, "store/past_requests", other=number).all()
    texts = [" ".join([row.objective, *row.requirements, row.result or ""]) for row in past]
    best = [past[position] for position, _ in rank_texts(query, texts, min(limit, MAX_RESULTS))]
    return _json(
        [
            _fields(row, "number", "status", "tools")
            | {"objective": _short(row.objective), "outcome": _short(row.result or row.reason)}
            for row in best
        ]
    )


def preferences(conn: Connection, trace_id: int, *, user: str, query: str, number: int | None, limit: int) -> str:
    """What a user has said in requests other than `number`: by BM25 first, then the newest."""
    limit = min(limit, MAX_RESULTS)
    sayings = list(dict.fromkeys(sql.run(conn, "store/user_statements", user=user, other=number).scalars()))
    best = [sayings[position] for position, _ in rank_texts(query, sayings, limit)]
    newest = [saying for saying in sayings if saying not in best]
    return _json([_short(saying) for saying in [*best, *newest][:limit]])


def find_tools(conn: Connection, trace_id: int, *, query: str, limit: int) -> str:
    """Tools of the library by BM25 over their names, signatures and descriptions (their docstrings)."""
    rows = tools.rows(conn)
    texts = [f"{row.name} {row.signature} {row.description}" for row in rows]
    return _json([_tool(rows[position]) for position, _ in rank_texts(query, texts, min(limit, MAX_RESULTS))])


def read_tool(conn: Connection, trace_id: int, *, name: str, version: int | None) -> str:
    """A tool of the library with the source of a version, or of the newest one. Raises UsageError."""
    row = required(next(iter(tools.rows(conn, [name], version)), None), f"the library has no tool {name!r:.80}")
    return _json(_tool(row) | _fields(row, "source", "tests", "evaluator"))


def _tool(row: Any) -> dict[str, Any]:
    fields = _fields(row, "name", "signature", "version", "uses", "successes")
    return fields | {"description": _short(row.description)}


def _fields(row: object, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 3] + "..."


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
