"""The ticks of a trace, and a timeline of the steps of one."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen import sql

WIDTH = 1000
"""Of a timeline, in units of its SVG."""


def ticks(conn: sa.Connection, trace_id: int) -> list[dict[str, Any]]:
    """The ticks in order, each with its first block and that of the next tick."""
    return [dict(row._mapping) for row in conn.execute(sql.load("viewer/ticks"), {"trace": trace_id})]


@dataclass(frozen=True)
class Bar:
    """A step in a timeline. Times are in seconds."""

    step: Any
    """Row of steps_of_tick.sql."""
    label: str
    begin: float
    """Since the timeline's begin."""
    waiting: float
    """Until a worker claimed the step."""
    model: float
    """Waited for a model server."""
    environment: float
    """Waited for an environment."""
    own: float
    """The rest of its time."""

    @property
    def seconds(self) -> float:
        """From ready to finished, or to now."""
        return self.waiting + self.model + self.environment + self.own


@dataclass(frozen=True)
class Timeline:
    """The steps of a tick."""

    bars: list[Bar]
    seconds: float
    """From the first step's start to the last step's end."""
    scale: float
    """Units of WIDTH in a second."""
    model: float
    """Seconds, summed over the steps, which may overlap."""
    environment: float
    waiting: float


def timeline(conn: sa.Connection, trace_id: int, tick: int) -> Timeline | None:
    """The time that a tick spent. None before its first step."""
    steps = conn.execute(sql.load("viewer/steps_of_tick"), {"trace": trace_id, "tick": tick}).all()
    if not steps:
        return None
    begin = min(step.ready for step in steps)
    seconds = max(1e-3, *(_end(step, step.ready) - begin for step in steps))
    bars = [_bar(step, f"trace {trace_id} tick {tick}", begin) for step in steps]
    return Timeline(
        bars,
        seconds,
        scale=WIDTH / seconds,
        model=sum(step.model_seconds or 0.0 for step in steps),
        environment=sum(step.environment_seconds or 0.0 for step in steps),
        waiting=sum(bar.waiting for bar in bars),
    )


def _bar(step: Any, prefix: str, begin: float) -> Bar:
    end = _end(step, step.claimed or step.ready)
    claimed = min(max(step.claimed or end, step.ready), end)
    worked = max(end - claimed, 0.0)
    model = min(step.model_seconds or 0.0, worked)
    environment = min(step.environment_seconds or 0.0, worked - model)
    label = step.label.removeprefix(prefix).strip() or step.kind
    own = worked - model - environment
    return Bar(step, label, step.ready - begin, claimed - step.ready, model, environment, own)


def _end(step: Any, otherwise: float) -> float:
    """When a step finished; now if it is open; `otherwise` if it was left unfinished."""
    if step.finished:
        return float(step.finished)
    return float(step.now) if step.status in ("ready", "running") else otherwise
