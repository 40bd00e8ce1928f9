"""The library of tools in Postgres: versions, scores, uses."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weavegen import sql
from weavegen.kernel.steps import ToolCalled, ToolSaved
from weavegen.store.models.tools import VERSIONS


@dataclass(frozen=True)
class VersionRow:
    """A version of a tool."""

    version: int
    score: float | None
    generality: float | None
    made_by: int | None
    """The toolsmith's trace that made it."""
    searched_by: int | None
    """The trace of the search that found it; None: it was not found by a search."""
    program: int | None
    """Number of the program in that search."""
    created_at: datetime.datetime
    uses: int
    successes: int
    """Calls that returned a value."""
    source: str
    tests: str
    evaluator: str


@dataclass(frozen=True)
class ToolRow(VersionRow):
    """A tool in its newest version. Uses and successes are those of all versions."""

    name: str
    description: str
    signature: str
    """Its first line: `def name(...) -> ...`."""
    users: int
    """Traces that have used it."""


def save(conn: sa.Connection, trace_id: int, made: ToolSaved) -> int:
    """Store a tool, or a new version of a tool. Returns the version's number.

    The source of the newest version makes no new version: a tick that is started over saves its tools again.
    """
    values = {"name": made.name, "description": made.description, "signature": made.signature}
    tool = sql.run(conn, "store/save_tool", **values).scalar_one()
    versions = sa.select(VERSIONS.c.version, VERSIONS.c.source).where(VERSIONS.c.tool_id == tool)
    newest = conn.execute(versions.order_by(VERSIONS.c.version.desc()).limit(1)).one_or_none()
    if newest is not None and newest.source == made.source:
        return int(newest.version)
    version = 1 if newest is None else int(newest.version) + 1
    searched_by, program = made.program if made.program is not None else (None, None)
    copied = {name: getattr(made, name) for name in ("source", "tests", "evaluator", "score", "generality")}
    identity = {"tool_id": tool, "version": version, "made_by": trace_id}
    conn.execute(sa.insert(VERSIONS).values(**identity, **copied, searched_by=searched_by, program=program))
    return version


def count_use(conn: sa.Connection, trace_id: int, use: ToolCalled) -> None:
    """Record a call of a tool."""
    sql.run(conn, "store/count_tool_use", trace=trace_id, name=use.name, version=use.version, success=use.success)


def rows(conn: sa.Connection, names: Sequence[str] | None = None) -> list[ToolRow]:
    """Tools in their newest versions, in the order in which they were first made. `names` None: all."""
    parameters = {"names": None if names is None else list(names)}
    return [ToolRow(**row._mapping) for row in sql.run(conn, "store/tools", **parameters)]


def versions(conn: sa.Connection, name: str) -> list[VersionRow]:
    """All versions of a tool, in order; none where there is no such tool."""
    return [VersionRow(**row._mapping) for row in sql.run(conn, "store/tool_versions", name=name)]
