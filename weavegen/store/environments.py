"""Environments in Postgres: the host and process of each, and what they reported."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import sql
from weavegen.kernel.steps import Asserted, Evaluated, Executed, SubagentState, View
from weavegen.store.models.blocks import EVALUATIONS, LABELS, TRIALS
from weavegen.store.models.traces import ENVIRONMENTS


def host(conn: sa.Connection, trace_id: int) -> str | None:
    """The host of a trace's environment; None before it is started."""
    open = (ENVIRONMENTS.c.trace_id == trace_id, ENVIRONMENTS.c.closed_at.is_(None))
    return conn.execute(sa.select(ENVIRONMENTS.c.host).where(*open)).scalar_one_or_none()


def opened(conn: sa.Connection, trace_id: int, host: str, pid: int, sandbox: str) -> None:
    """Record that an environment was started. A second record of the same trace replaces the first."""
    sql.run(conn, "store/environment_opened", trace=trace_id, host=host, pid=pid, sandbox=sandbox)


def closed(conn: sa.Connection, trace_id: int) -> None:
    """Record that an environment was stopped, or found dead."""
    sql.run(conn, "store/environment_closed", trace=trace_id)


def deaths(conn: sa.Connection, trace_id: int) -> int:
    """How many environments of a trace died."""
    closed = (ENVIRONMENTS.c.trace_id == trace_id, ENVIRONMENTS.c.closed_at.is_not(None))
    return int(conn.execute(sa.select(sa.func.count()).where(*closed)).scalar_one())


def to_close(conn: sa.Connection, trace_id: int | None = None) -> Sequence[Any]:
    """Rows (trace_id, host) of the open environments whose trace is over; or only of one trace."""
    return sql.run(conn, "store/environments_to_close", trace=trace_id).all()


def save_evaluations(
    conn: sa.Connection, trace_id: int, step_id: int, tick: int, evaluations: Sequence[Evaluated]
) -> None:
    """Store the results of evaluation callbacks."""
    rows = [
        {
            "trace_id": trace_id,
            "step_id": step_id,
            "tick": tick,
            "position": position,
            **shown(evaluated, "scope", "title", "value", "protected", "cause"),
        }
        for position, evaluated in enumerate(evaluations)
    ]
    if rows:
        conn.execute(sa.insert(EVALUATIONS), rows)


def shown(of: Evaluated | View, *names: str) -> dict[str, Any]:
    """These fields of an evaluation or a view, and `error`, its exception in one line."""
    error = None if of.error is None else f"{of.error.type}: {of.error.message}"
    return {name: getattr(of, name) for name in names} | {"error": error}


def save_assertions(conn: sa.Connection, trace_id: int, step_id: int, assertions: Sequence[Asserted]) -> None:
    """Store the questions of assertions, with their answers."""
    rows = [
        {"trace_id": trace_id, "step_id": step_id, "position": position, **msgspec.structs.asdict(asserted)}
        for position, asserted in enumerate(assertions)
    ]
    if rows:
        conn.execute(sa.insert(LABELS), rows)


def save_trials(conn: sa.Connection, trace_id: int, step_id: int, tried: Sequence[int], executed: Executed) -> None:
    """Store what came of candidates, by their ids."""
    rows = [
        {
            "step_id": step_id,
            "candidate_id": candidate,
            "trace_id": trace_id,
            "ran": None if trial.not_tried is not None else trial.error is None,
            "exception": trial.error.type if trial.error else None,
            "error": (trial.error.traceback or trial.error.message) if trial.error else None,
            "assertions": [msgspec.structs.asdict(asserted) for asserted in trial.assertions],
            "evaluations": [shown(evaluated, "scope", "title", "value") for evaluated in trial.evaluations],
            "views": [shown(view, "title", "text") for view in trial.views],
            **{name: getattr(trial, name) for name in ("not_tried", "value", "output", "seconds")},
        }
        for candidate, trial in zip(tried, executed.trials, strict=False)
    ]
    if rows:
        conn.execute(sa.insert(TRIALS), rows)


def save_subagents(conn: sa.Connection, trace_id: int, subagents: Sequence[SubagentState]) -> None:
    """Store the subagents of a trace. Rows that have not changed are not written again."""
    sql.run(conn, "store/save_subagents", trace=trace_id, subagents=subagents)
