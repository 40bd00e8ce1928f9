"""The library of tools in Postgres: versions, scores, uses."""

from collections.abc import Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import ToolSaved


def save(conn: Connection, trace_id: int, made: ToolSaved) -> int:
    """Store a tool, or a new version of a tool, whose signature becomes the tool's. Returns the version's number.

    If the source is that of the newest version, there is no new one: a tick that is started over saves its tools again.
    """
    values = {"name": made.name, "description": made.description, "signature": made.signature}
    tool = sql.run(conn, "store/save_tool", **values).scalar_one()
    searched_by, program = made.program if made.program is not None else (None, None)
    copied = {name: getattr(made, name) for name in ("source", "tests", "evaluator", "score", "generality")}
    identity = {"tool": tool, "made_by": trace_id, "searched_by": searched_by, "program": program}
    return int(sql.run(conn, "store/save_tool_version", **identity, **copied).scalar_one())


def rows(conn: Connection, names: Sequence[str] | None = None, version: int | None = None) -> Sequence[Any]:
    """Rows of tools.sql, in the order in which the tools were first made. None: all names; the newest versions."""
    return sql.run(conn, "store/tools", names=None if names is None else list(names), version=version).all()


def versions(conn: Connection, name: str) -> Sequence[Any]:
    """All versions of a tool, in order: rows of tool_versions.sql; none where there is no such tool."""
    return sql.run(conn, "store/tool_versions", name=name).all()
