"""The ticks of a trace, and a timeline of the steps of one."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.viewer import sql

WIDTH = 1000
"""Of a timeline, in units of its SVG."""
ROW_HEIGHT = 22
SCALE_MARKS = 5


def ticks(conn: sa.Connection, trace_id: int) -> list[dict[str, Any]]:
    """The ticks in order, each with its first block and that of the next tick."""
    return [dict(row._mapping) for row in conn.execute(sql.load("ticks"), {"trace": trace_id})]


@dataclass(frozen=True)
class Bar:
    """A step in a timeline."""

    step: Any
    """Row of steps_of_tick.sql."""
    label: str
    y: int
    x: float
    """Place of its start; all places and widths in units of WIDTH."""
    waiting: float
    """Width of the time before a worker claimed it."""
    model: float
    """Width of the time in which it waited for a model server."""
    environment: float
    """Width of the time in which it waited for an environment."""
    own: float
    """Width of the rest of its time."""
    seconds: float
    """From ready to finished, or to now."""
    waiting_seconds: float


@dataclass(frozen=True)
class Timeline:
    """The steps of a tick."""

    bars: list[Bar]
    seconds: float
    """From the first step's start to the last step's end."""
    marks: list[tuple[float, str]]
    """Places and labels of the scale."""
    model: float
    """Seconds, summed over the steps, which may overlap."""
    environment: float
    waiting: float

    @property
    def height(self) -> int:
        return ROW_HEIGHT * len(self.bars) + 24


def timeline(conn: sa.Connection, trace_id: int, tick: int) -> Timeline | None:
    """The time that a tick spent. None before its first step."""
    steps = conn.execute(sql.load("steps_of_tick"), {"trace": trace_id, "tick": tick}).all()
    if not steps:
        return None
    begin = min(step.ready for step in steps)
    seconds = max(1e-3, *(_end(step, step.ready) - begin for step in steps))
    prefix = f"trace {trace_id} tick {tick}"
    bars = [_bar(step, number, prefix, begin, WIDTH / seconds) for number, step in enumerate(steps)]
    return Timeline(
        bars,
        seconds,
        [(WIDTH * part / SCALE_MARKS, f"{seconds * part / SCALE_MARKS:.2f} s") for part in range(SCALE_MARKS + 1)],
        model=sum(step.model_seconds or 0.0 for step in steps),
        environment=sum(step.environment_seconds or 0.0 for step in steps),
        waiting=sum(bar.waiting_seconds for bar in bars),
    )


def _bar(step: Any, number: int, prefix: str, begin: float, scale: float) -> Bar:
    """`begin`: when the timeline begins. `scale`: units of WIDTH in a second."""
    end = _end(step, step.claimed or step.ready)
    claimed = min(max(step.claimed or end, step.ready), end)
    worked = max(end - claimed, 0.0)
    model = min(step.model_seconds or 0.0, worked)
    environment = min(step.environment_seconds or 0.0, worked - model)
    return Bar(
        step=step,
        label=step.label.removeprefix(prefix).strip() or step.kind,
        y=number * ROW_HEIGHT,
        x=(step.ready - begin) * scale,
        waiting=(claimed - step.ready) * scale,
        model=model * scale,
        environment=environment * scale,
        own=(worked - model - environment) * scale,
        seconds=end - step.ready,
        waiting_seconds=claimed - step.ready,
    )


def _end(step: Any, otherwise: float) -> float:
    """When a step finished; now if it is open; `otherwise` if it was left unfinished."""
    if step.finished:
        return float(step.finished)
    return float(step.now) if step.status in ("ready", "running") else otherwise
