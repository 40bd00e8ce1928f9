"""What the toolsmith looks up: requests with what came of them, users' preferences, the library of tools.

Functions that only read and answer with JSON. They are not for researchers: their programs do not name them.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.search.ranking import ranked
from weavegen.store import requests, tools
from weavegen.store.tools import ToolRow

MOST = 20
"""Things found at most."""
LONGEST = 1_200
"""Characters of a text in an answer; longer ones lose their ends."""


def read_request(conn: sa.Connection, trace_id: int, *, number: int) -> str:
    """A request as it is asked for now. Raises UsageError."""
    row = requests.load(conn, number)
    return _json(
        {
            "objective": row.objective,
            "requirements": row.requirements,
            "constraints": row.constraints,
            "revision": row.revision,
        }
    )


def past_requests(
    conn: sa.Connection, trace_id: int, *, query: str, number: int | None = None, limit: int = 5
) -> str:
    """Requests other than `number` by BM25, and what came of them."""
    found = requests.past(conn, number)
    texts = [" ".join([one.objective, *one.requirements, one.result or ""]) for one in found]
    best = [found[position] for position, _ in ranked(query, texts, min(limit, MOST))]
    return _json(
        [
            {
                "number": one.number,
                "objective": _short(one.objective),
                "status": one.status,
                "outcome": _short(one.result or one.reason),
                "tools": one.tools,
            }
            for one in best
        ]
    )


def preferences(
    conn: sa.Connection, trace_id: int, *, user: str, query: str, number: int | None = None, limit: int = 5
) -> str:
    """What a user has said in requests other than `number`: by BM25 first, then the newest."""
    said = requests.sayings(conn, user, number)
    best = [said[position] for position, _ in ranked(query, said, min(limit, MOST))]
    newest = [one for one in said if one not in best]
    return _json([_short(one) for one in [*best, *newest][: min(limit, MOST)]])


def find_tools(conn: sa.Connection, trace_id: int, *, query: str, limit: int = 5) -> str:
    """Tools of the library by BM25 over their names, signatures and descriptions (their docstrings)."""
    found = tools.rows(conn)
    texts = [f"{one.name} {one.signature} {one.description}" for one in found]
    return _json([_tool(found[position]) for position, _ in ranked(query, texts, min(limit, MOST))])


def read_tool(conn: sa.Connection, trace_id: int, *, name: str) -> str:
    """A tool of the library with its source. Raises UsageError."""
    for one in tools.rows(conn, [name]):
        return _json(_tool(one) | {"source": one.source, "tests": one.tests, "evaluator": one.evaluator})
    raise UsageError(f"the library has no tool {name!r:.80}")


TOOLS: dict[str, Callable[..., str]] = {
    function.__name__: function for function in (read_request, past_requests, preferences, find_tools, read_tool)
}
"""Each is called with a connection, the number of the trace that asks, and what that gives as keywords."""


def _tool(row: ToolRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "description": _short(row.description),
        "signature": row.signature,
        "version": row.version,
        "uses": row.uses,
        "successes": row.successes,
    }


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
