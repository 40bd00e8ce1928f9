"""Programs in Postgres: those that searches evaluated, with their scores."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import ProgramEvaluated


def save(conn: Connection, trace_id: int, tick: int, tried: ProgramEvaluated, steps: Mapping[int, int]) -> None:
    """Store a program. `steps` maps the tick's ordinals to step ids.

    A program with this number or a higher one is replaced: it belongs to a tick that was started over since.
    """
    sql.run(conn, "store/drop_programs", trace=trace_id, number=tried.number)
    candidate = None
    if tried.candidate is not None:
        ordinal, position = tried.candidate
        # None in a fork's first tick, where the candidate belongs to a step of another trace.
        candidate = sql.run(conn, "store/candidate_id", step=steps[ordinal], position=position).scalar_one_or_none()
    columns = ("number", "generation", "island", "parents", "source", "score", "signature", "error")
    values = {name: getattr(tried, name) for name in columns}
    sql.run(conn, "store/save_program", trace=trace_id, tick=tick, candidate=candidate, **values)


@dataclass(frozen=True)
class SearchTask:
    """The task of a search."""

    file: str
    """Name of the task's file."""
    model: str | None
    """None: no model was asked yet."""
    task: dict[str, Any]
    """Empty where the trace began with something else, such as a bootstrap file."""


def task_of(conn: Connection, trace_id: int) -> SearchTask | None:
    """The task of any trace. None: there is no such trace."""
    row = sql.run(conn, "store/task_of_trace", trace=trace_id).one_or_none()
    if row is None:
        return None
    try:
        task = msgspec.json.decode(row.source)
    except msgspec.DecodeError:
        task = {}
    return SearchTask(row.name, row.model, task if isinstance(task, dict) else {})
