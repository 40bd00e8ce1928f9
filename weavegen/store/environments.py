"""Environments in Postgres: which process of which host belongs to a trace, and what it reported."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.kernel.steps import Asserted, Evaluated, SubagentState
from weavegen.store import models as m
from weavegen.store.traces import OVER

ENVIRONMENTS, EVALUATIONS, LABELS, SUBAGENTS, TRACES = map(
    m.table, (m.Environment, m.Evaluation, m.GroundedLabel, m.Subagent, m.Trace)
)


def host(conn: sa.Connection, trace_id: int) -> str | None:
    """The host that the trace's environment lives on; None before it was started."""
    query = sa.select(ENVIRONMENTS.c.host).where(
        ENVIRONMENTS.c.trace_id == trace_id, ENVIRONMENTS.c.closed_at.is_(None)
    )
    return conn.execute(query).scalar_one_or_none()


def opened(conn: sa.Connection, trace_id: int, host: str, pid: int, sandbox: str) -> None:
    """Note that an environment was started; a second note of the same trace replaces the first."""
    values = {"host": host, "pid": pid, "sandbox": sandbox}
    conn.execute(
        insert(ENVIRONMENTS)
        .values(trace_id=trace_id, **values)
        .on_conflict_do_update(
            index_elements=["trace_id"], index_where=ENVIRONMENTS.c.closed_at.is_(None), set_=values
        )
    )


def closed(conn: sa.Connection, trace_id: int) -> None:
    """Note that an environment is gone."""
    conn.execute(
        sa.update(ENVIRONMENTS)
        .where(ENVIRONMENTS.c.trace_id == trace_id, ENVIRONMENTS.c.closed_at.is_(None))
        .values(closed_at=sa.func.clock_timestamp())
    )


def deaths(conn: sa.Connection, trace_id: int) -> int:
    """How many environments of a trace are gone."""
    query = sa.select(sa.func.count()).where(
        ENVIRONMENTS.c.trace_id == trace_id, ENVIRONMENTS.c.closed_at.is_not(None)
    )
    return int(conn.execute(query).scalar_one())


def to_close(conn: sa.Connection, trace_id: int | None = None) -> Sequence[tuple[int, str]]:
    """(trace id, host) of the open environments whose trace is over; of one trace only, if given."""
    query = (
        sa.select(ENVIRONMENTS.c.trace_id, ENVIRONMENTS.c.host)
        .join(TRACES, TRACES.c.id == ENVIRONMENTS.c.trace_id)
        .where(ENVIRONMENTS.c.closed_at.is_(None), TRACES.c.status.in_(OVER))
    )
    if trace_id is not None:
        query = query.where(ENVIRONMENTS.c.trace_id == trace_id)
    return [(row.trace_id, row.host) for row in conn.execute(query)]


def save_evaluations(
    conn: sa.Connection, trace_id: int, step_id: int, tick: int, evaluations: Sequence[Evaluated]
) -> None:
    """Keep the results of evaluation callbacks."""
    rows = [
        {
            "trace_id": trace_id,
            "step_id": step_id,
            "tick": tick,
            "position": position,
            "scope": evaluated.scope,
            "title": evaluated.title,
            "value": evaluated.value,
            "error": f"{evaluated.error.type}: {evaluated.error.message}" if evaluated.error else None,
        }
        for position, evaluated in enumerate(evaluations)
    ]
    if rows:
        conn.execute(sa.insert(EVALUATIONS), rows)


def save_assertions(conn: sa.Connection, trace_id: int, step_id: int, assertions: Sequence[Asserted]) -> None:
    """Keep what assertions asked, and how they came out."""
    rows = [
        {"trace_id": trace_id, "step_id": step_id, "position": position, **msgspec.structs.asdict(one)}
        for position, one in enumerate(assertions)
    ]
    if rows:
        conn.execute(sa.insert(LABELS), rows)


def save_subagents(conn: sa.Connection, trace_id: int, subagents: Sequence[SubagentState]) -> None:
    """Keep the problem map; rows that say what they said before are not written again."""
    rows = [
        {
            "trace_id": trace_id,
            "name": one.name,
            "parent": one.parent,
            "description": one.description,
            "schema": one.schema,
            "time_budget": one.time_budget,
            "completed": one.completed,
            "returned": one.returned,
        }
        for one in subagents
    ]
    if not rows:
        return
    statement = insert(SUBAGENTS)
    new = statement.excluded
    changing = ("description", "schema", "time_budget", "completed", "returned")
    conn.execute(
        statement.on_conflict_do_update(
            index_elements=["trace_id", "name"],
            set_={name: new[name] for name in changing},
            where=sa.or_(*(SUBAGENTS.c[name].is_distinct_from(new[name]) for name in changing)),
        ),
        rows,
    )
