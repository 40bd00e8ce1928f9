"""Ticks of a trace, and where the time of one went."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

WIDTH = 1000
"""Of a timeline, in its own units."""
ROW = 22
"""Height of a step."""


def ticks(conn: sa.Connection, trace_id: int) -> list[dict[str, Any]]:
    """A trace's ticks, in order, with the ends of their blocks."""
    query = """
        select k.number, k.subagent, k.reward, k.repeats, k.run, k.first_block, k.finished_at,
          lead(k.first_block) over (order by k.number) as next_block,
          extract(epoch from k.finished_at)::float - k.clock - t.lag as seconds
        from ticks k join traces t on t.id = k.trace_id where k.trace_id = :trace order by k.number
        """
    return [dict(row._mapping) for row in conn.execute(sa.text(query), {"trace": trace_id})]


@dataclass(frozen=True)
class Bar:
    """A step, laid out: places are in units of the timeline's width."""

    label: str
    kind: str
    status: str
    run: int
    ordinal: int
    claims: int
    failure: str | None
    y: int
    x: float
    waiting: float
    """Widths: from asked for to taken; then model, environment, and the rest of its work."""
    model: float
    environment: float
    own: float
    seconds: float
    waiting_seconds: float
    model_seconds: float | None
    """None: it asked no model."""
    environment_seconds: float | None


@dataclass(frozen=True)
class Timeline:
    """The steps of a tick."""

    bars: list[Bar]
    seconds: float
    """From the first step's being asked for to the last one's end."""
    marks: list[tuple[float, str]]
    """Places and names of the scale."""
    model: float
    """Seconds in all, of steps that may overlap."""
    environment: float
    waiting: float

    @property
    def height(self) -> int:
        return ROW * len(self.bars) + 24


STEPS = sa.text(
    """
    select run, ordinal, kind, label, status, claims, failure, model_seconds, environment_seconds,
      extract(epoch from ready_at)::float as ready, extract(epoch from claimed_at)::float as claimed,
      extract(epoch from finished_at)::float as finished, extract(epoch from now())::float as now
    from steps where trace_id = :trace and tick = :tick order by run, ordinal limit 2000
    """
)


def timeline(conn: sa.Connection, trace_id: int, tick: int) -> Timeline | None:
    """Where a tick's time went; None before its first step."""
    rows = conn.execute(STEPS, {"trace": trace_id, "tick": tick}).all()
    if not rows:
        return None
    begin = min(row.ready for row in rows)
    end = max(row.finished or (row.now if row.status in ("ready", "running") else row.ready) for row in rows)
    seconds = max(end - begin, 1e-3)
    scale = WIDTH / seconds
    bars = []
    for number, row in enumerate(rows):
        done = row.finished or (row.now if row.status in ("ready", "running") else row.claimed or row.ready)
        taken = min(max(row.claimed or done, row.ready), done)
        model, environment = row.model_seconds or 0.0, row.environment_seconds or 0.0
        worked = max(done - taken, 0.0)
        model = min(model, worked)
        environment = min(environment, worked - model)
        bars.append(
            Bar(
                label=row.label.removeprefix(f"trace {trace_id} tick {tick}").strip() or row.kind,
                kind=row.kind,
                status=row.status,
                run=row.run,
                ordinal=row.ordinal,
                claims=row.claims,
                failure=row.failure,
                y=number * ROW,
                x=(row.ready - begin) * scale,
                waiting=(taken - row.ready) * scale,
                model=model * scale,
                environment=environment * scale,
                own=(worked - model - environment) * scale,
                seconds=done - row.ready,
                waiting_seconds=taken - row.ready,
                model_seconds=row.model_seconds,
                environment_seconds=row.environment_seconds,
            )
        )
    marks = [(WIDTH * part / 5, f"{seconds * part / 5:.2f} s") for part in range(6)]
    return Timeline(
        bars,
        seconds,
        marks,
        model=sum(row.model_seconds or 0.0 for row in rows),
        environment=sum(row.environment_seconds or 0.0 for row in rows),
        waiting=sum(bar.waiting_seconds for bar in bars),
    )
