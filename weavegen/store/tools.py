"""The library of tools in Postgres: versions, scores, uses."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.kernel.steps import ToolCalled, ToolSaved
from weavegen.store import models as m

TOOLS, VERSIONS, USES = map(m.table, (m.Tool, m.ToolVersion, m.ToolUse))


@dataclass(frozen=True)
class ToolRow:
    """A tool in its newest version."""

    name: str
    description: str
    signature: str
    version: int
    source: str
    tests: str
    evaluator: str
    score: float | None
    generality: float | None
    made_by: int | None
    """The trace that had it made."""
    searched_by: int | None
    program: int | None
    created_at: datetime.datetime
    """Of the version."""
    uses: int
    """Of all versions."""
    successes: int
    """Of these, the calls that came back with a value."""
    users: int
    """Traces that have used it."""


@dataclass(frozen=True)
class VersionRow:
    """A version of a tool."""

    version: int
    score: float | None
    generality: float | None
    made_by: int | None
    searched_by: int | None
    program: int | None
    created_at: datetime.datetime
    uses: int
    successes: int
    source: str
    tests: str
    evaluator: str


def save(conn: sa.Connection, trace_id: int, made: ToolSaved) -> int:
    """Put a tool into the library, or a new version of one that it has. Returns the version's number.

    The newest version over again is none: a tick that is started over says again what it has made.
    """
    values = {"description": made.description, "signature": made.signature}
    statement = insert(TOOLS).values(name=made.name, **values)
    # Doing nothing would not lock the row, and two traces might take one number.
    tool = conn.execute(
        statement.on_conflict_do_update(index_elements=["name"], set_=values).returning(TOOLS.c.id)
    ).scalar_one()
    of_tool = sa.select(VERSIONS.c.version, VERSIONS.c.source).where(VERSIONS.c.tool_id == tool)
    newest = conn.execute(of_tool.order_by(VERSIONS.c.version.desc()).limit(1)).one_or_none()
    if newest is not None and newest.source == made.source:
        return int(newest.version)
    version = 1 if newest is None else int(newest.version) + 1
    searched_by, program = made.program if made.program is not None else (None, None)
    conn.execute(
        sa.insert(VERSIONS).values(
            tool_id=tool,
            version=version,
            source=made.source,
            tests=made.tests,
            evaluator=made.evaluator,
            score=made.score,
            generality=made.generality,
            made_by=trace_id,
            searched_by=searched_by,
            program=program,
        )
    )
    return version


def used(conn: sa.Connection, trace_id: int, use: ToolCalled) -> None:
    """Count a call of a tool."""
    version = sa.select(VERSIONS.c.id).join(TOOLS, TOOLS.c.id == VERSIONS.c.tool_id)
    version = version.where(TOOLS.c.name == use.name, VERSIONS.c.version == use.version)
    conn.execute(
        sa.insert(USES).from_select(
            ["tool_version_id", "trace_id", "success"],
            version.add_columns(sa.literal(trace_id, sa.BigInteger), sa.literal(use.success)),
        )
    )


READ = """
    select t.name, t.description, t.signature, v.version, v.source, v.tests, v.evaluator, v.score, v.generality,
      v.made_by, v.searched_by, v.program, v.created_at, u.uses, u.successes, u.users
    from tools t
    join lateral (select * from tool_versions where tool_id = t.id order by version desc limit 1) v on true
    cross join lateral (
      select count(*) as uses, count(*) filter (where success) as successes, count(distinct trace_id) as users
      from tool_uses join tool_versions o on o.id = tool_version_id where o.tool_id = t.id
    ) u
    where t.name = any(:names) or :names is null order by t.id
"""


def rows(conn: sa.Connection, names: Sequence[str] | None = None) -> list[ToolRow]:
    """Tools in their newest versions, in the order in which they were first made; None: all."""
    query = sa.text(READ).bindparams(sa.bindparam("names", type_=sa.ARRAY(sa.Text)))
    found = conn.execute(query, {"names": None if names is None else list(names)})
    return [ToolRow(**row._mapping) for row in found]


OF_TOOL = sa.text(
    """
    select v.version, v.score, v.generality, v.made_by, v.searched_by, v.program, v.created_at,
      (select count(*) from tool_uses where tool_version_id = v.id) as uses,
      (select count(*) from tool_uses where tool_version_id = v.id and success) as successes,
      v.source, v.tests, v.evaluator
    from tool_versions v join tools t on t.id = v.tool_id where t.name = :name order by v.version
    """
)


def versions(conn: sa.Connection, name: str) -> list[VersionRow]:
    """All versions of a tool, in order; none where there is no such tool."""
    return [VersionRow(**row._mapping) for row in conn.execute(OF_TOOL, {"name": name})]
