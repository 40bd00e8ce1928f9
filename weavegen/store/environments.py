"""Environments in Postgres: the host and process of each, and what they reported."""

from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import Asserted, Evaluated, Executed, View


def place(conn: Connection, trace_id: int) -> tuple[str, int] | None:
    """The host and the process of a trace's environment; None before it is started."""
    row = sql.run(conn, "store/place_of_environment", trace=trace_id).one_or_none()
    return None if row is None else (row.host, row.pid)


def save_evaluations(
    conn: Connection, trace_id: int, step_id: int, tick: int, evaluations: Sequence[Evaluated]
) -> None:
    """Store the results of evaluation callbacks."""
    place = {"trace": trace_id, "step": step_id, "tick": tick}
    rows = [
        place | {"position": position} | shown(evaluated, "scope", "title", "value", "protected", "cause")
        for position, evaluated in enumerate(evaluations)
    ]
    sql.run_each(conn, "store/save_evaluation", rows)


def shown(of: Evaluated | View, *names: str) -> dict[str, Any]:
    """These fields of an evaluation or a view, and `error`, its exception in one line."""
    error = None if of.error is None else f"{of.error.type}: {of.error.message}"
    return {name: getattr(of, name) for name in names} | {"error": error}


def save_assertions(conn: Connection, trace_id: int, step_id: int, assertions: Sequence[Asserted]) -> None:
    """Store the questions of assertions, with their answers."""
    rows = [
        {"trace": trace_id, "step": step_id, "position": position, **msgspec.structs.asdict(asserted)}
        for position, asserted in enumerate(assertions)
    ]
    sql.run_each(conn, "store/save_assertion", rows)


def save_trials(conn: Connection, trace_id: int, step_id: int, tried: Sequence[int], executed: Executed) -> None:
    """Store the results of tried candidates, by their ids."""
    rows = [
        {
            "trace": trace_id,
            "step": step_id,
            "candidate": candidate,
            "ran": None if trial.not_tried is not None else trial.error is None,
            "exception": trial.error.type if trial.error else None,
            "error": (trial.error.traceback or trial.error.message) if trial.error else None,
            "assertions": trial.assertions,
            "evaluations": [shown(evaluated, "scope", "title", "value") for evaluated in trial.evaluations],
            "views": [shown(view, "title", "text") for view in trial.views],
            **{name: getattr(trial, name) for name in ("not_tried", "value", "output", "seconds")},
        }
        for candidate, trial in zip(tried, executed.trials, strict=False)
    ]
    sql.run_each(conn, "store/save_trial", rows)
