"""Jobs and their traces, as the viewer lists them."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from weavegen.sim import MODEL
from weavegen.store import reports
from weavegen.store.reports import JobRow

LISTED = 50
"""Jobs on a page."""
PAGE = 100
"""Traces on a page."""
MOMENT = 10.0
"""Seconds that a rate of now is the mean of."""


@dataclass(frozen=True)
class JobView:
    """A job with how far it is."""

    row: JobRow
    agent: str
    model: str | None
    simulated: bool
    """Written by the simulated model: what it says means nothing."""
    called_by: int | None
    progress: float
    """0 to 1: of each trace that runs, the share of the budget that is spent most."""
    seconds_left: float | None
    """Estimated; None: nothing is known, or nothing is left."""
    blocks_now: float | None = None
    """A second, over the last moments; None: not looked at long enough."""
    tokens_now: float | None = None

    @property
    def blocks_mean(self) -> float | None:
        """A second, over the job's time."""
        return self.row.blocks / self.row.seconds if self.row.seconds else None

    @property
    def tokens_mean(self) -> float | None:
        """Sampled a second, over the job's time."""
        return self.row.sampled_tokens / self.row.seconds if self.row.seconds else None


PROGRESS = sa.text(
    """
    with asked as (
      select j.id, j.agent, j.model, j.called_by, coalesce(
        (select r.settings from job_settings r where r.job_id = j.id order by r.revision desc limit 1), j.settings
      ) as settings
      from jobs j where j.id = any(:ids)
    ), budget as (
      select id, agent, model, called_by,
        case when jsonb_typeof(settings -> 'ticks') = 'number' then (settings -> 'ticks')::float end as ticks,
        case when jsonb_typeof(settings -> 'blocks') = 'number' then (settings -> 'blocks')::float end as blocks,
        case when jsonb_typeof(settings -> 'until_bytes') = 'number'
          then (settings -> 'until_bytes')::float end as bytes
      from asked
    )
    select g.id, g.agent, g.model, g.called_by, coalesce(avg(case
      when t.status in ('ended', 'failed', 'cancelled') then 1.0
      when t.status = 'queued' then 0.0
      else least(0.99, coalesce(greatest(
        t.ticks / nullif(g.ticks, 0), t.blocks / nullif(g.blocks, 0), t.bytes / nullif(g.bytes, 0)), 0))
    end), 0)::float as progress
    from budget g left join traces t on t.job_id = g.id
    group by g.id, g.agent, g.model, g.called_by
    """
)


def jobs(conn: sa.Connection, job_id: int | None = None) -> list[JobView]:
    """The latest jobs, or one. Raises UsageError if there is no such job."""
    rows = reports.jobs(conn, job_id, LISTED)
    known = {row.id: row for row in conn.execute(PROGRESS, {"ids": [row.id for row in rows]})}
    return [
        JobView(
            row,
            agent=known[row.id].agent,
            model=known[row.id].model,
            simulated=is_simulated(known[row.id].model),
            called_by=known[row.id].called_by,
            progress=(progress := float(known[row.id].progress)),
            seconds_left=seconds_left(progress, row.seconds) if row.open and row.state == "active" else None,
        )
        for row in rows
    ]


def is_simulated(model: str | None) -> bool:
    """Whether the name is that of the simulated model."""
    return model == MODEL


def simulated(conn: sa.Connection, job_ids: set[int]) -> set[int]:
    """Those of these jobs that the simulated model writes."""
    query = "select id from jobs where id = any(:ids) and model = :model"
    return set(conn.execute(sa.text(query), {"ids": list(job_ids), "model": MODEL}).scalars())


def seconds_left(progress: float, seconds: float) -> float | None:
    """An estimate: the rest takes as long as the part before did. None before anything is known."""
    return seconds * (1 - progress) / progress if 0.01 <= progress < 1 else None


@dataclass
class Rates:
    """What jobs do a second, over the last moments. One for each page that is open."""

    seen: dict[int, deque[tuple[float, int, int]]] = field(default_factory=dict)
    """Of each job: when, blocks and sampled tokens then."""

    def now(self, moment: float, row: JobRow) -> tuple[float | None, float | None]:
        """Blocks and tokens a second. `moment`: seconds of any steady clock."""
        seen = self.seen.setdefault(row.id, deque())
        seen.append((moment, row.blocks, row.sampled_tokens))
        while len(seen) > 2 and seen[1][0] <= moment - MOMENT:
            seen.popleft()
        began, blocks, tokens = seen[0]
        if moment - began < 1:
            return None, None
        return (row.blocks - blocks) / (moment - began), (row.sampled_tokens - tokens) / (moment - began)


def traces(conn: sa.Connection, job_id: int, status: str | None, page: int) -> list[dict[str, Any]]:
    """A page of a job's traces, in order; one more than PAGE where there is a next page."""
    rows = conn.execute(
        sa.text(
            """
            select t.id, t.number, b.name as bootstrap, t.status,
              coalesce(t.ended_because, t.failure_kind || ': ' || t.failure) as because,
              t.ticks, t.blocks, t.bytes, t.sampled_tokens,
              t.candidates::float / nullif(t.written, 0) as candidates_per_block,
              case when jsonb_typeof(t.returned) = 'object' then coalesce(t.returned ->> 'result',
                case t.returned -> 'success' when 'true' then 'success' when 'false' then 'no success' end)
              end as result,
              (select sum(k.reward) from ticks k where k.trace_id = t.id) as reward,
              t.fork_of, t.fork_at, t.retry_of, t.started_at, t.finished_at,
              extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds
            from traces t join bootstraps b on b.id = t.bootstrap_id
            where t.job_id = :job and (cast(:status as text) is null or t.status = :status)
            order by t.number limit :limit offset :offset
            """
        ),
        {"job": job_id, "status": status, "limit": PAGE + 1, "offset": page * PAGE},
    )
    return [dict(row._mapping) for row in rows]


def settings(conn: sa.Connection, job_id: int) -> dict[str, Any]:
    """A job's row: seed, version, who enqueued it, what differs from the default settings."""
    query = "select seed, version, enqueued_by, created_at, settings, asked_model from jobs where id = :job"
    return dict(conn.execute(sa.text(query), {"job": job_id}).one()._mapping)
