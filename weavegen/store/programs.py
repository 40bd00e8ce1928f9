"""Programs in Postgres: what searches have tried, and what became of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.kernel.steps import ProgramEvaluated
from weavegen.store import models as m

BOOTSTRAPS, CANDIDATES, JOBS, PROGRAMS, TRACES = map(
    m.table, (m.Bootstrap, m.Candidate, m.Job, m.TriedProgram, m.Trace)
)


def save(conn: sa.Connection, trace_id: int, tick: int, tried: ProgramEvaluated, steps: Mapping[int, int]) -> None:
    """Keep a program. `steps` maps the tick's ordinals to step ids.

    Numbers only grow, so one that is there already was tried in a tick that has been started over since.
    """
    conn.execute(sa.delete(PROGRAMS).where(PROGRAMS.c.trace_id == trace_id, PROGRAMS.c.number >= tried.number))
    candidate_id = None
    if tried.candidate is not None:
        ordinal, position = tried.candidate
        candidate_id = conn.execute(
            sa.select(CANDIDATES.c.id).where(
                CANDIDATES.c.step_id == steps[ordinal], CANDIDATES.c.position == position
            )
        ).scalar_one_or_none()  # of a fork's first tick another trace's step asked for it
    row = {
        "trace_id": trace_id,
        "number": tried.number,
        "tick": tick,
        "generation": tried.generation,
        "island": tried.island,
        "parents": list(tried.parents),
        "source": tried.source,
        "score": tried.score,
        "signature": list(tried.signature),
        "error": tried.error,
        "candidate_id": candidate_id,
    }
    conn.execute(sa.insert(PROGRAMS).values(row))


def of_trace(conn: sa.Connection, trace_id: int) -> Sequence[Any]:
    """Rows (number, generation, island, parents, score, error, source) of a search, by number."""
    names = ("number", "generation", "island", "parents", "score", "error", "source")
    query = (
        sa.select(*(PROGRAMS.c[name] for name in names))
        .where(PROGRAMS.c.trace_id == trace_id)
        .order_by(PROGRAMS.c.number)
    )
    return conn.execute(query).all()


@dataclass(frozen=True)
class About:
    """What a search is about."""

    file: str
    """Name of the task's file."""
    model: str | None
    """None: none was asked yet."""
    task: dict[str, Any]
    """Empty where it was given something else, such as a bootstrap file."""


def about(conn: sa.Connection, trace_id: int) -> About | None:
    """Of any trace; None: there is no such trace."""
    query = (
        sa.select(BOOTSTRAPS.c.name, BOOTSTRAPS.c.source, JOBS.c.model)
        .select_from(TRACES)
        .join(BOOTSTRAPS, TRACES.c.bootstrap_id == BOOTSTRAPS.c.id)
        .join(JOBS, TRACES.c.job_id == JOBS.c.id)
        .where(TRACES.c.id == trace_id)
    )
    row = conn.execute(query).one_or_none()
    if row is None:
        return None
    try:
        task = msgspec.json.decode(row.source)
    except msgspec.DecodeError:
        task = {}
    return About(row.name, row.model, task if isinstance(task, dict) else {})
