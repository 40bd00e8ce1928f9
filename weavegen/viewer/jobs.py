"""Jobs and their traces, as the viewer lists them."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.config import SIMULATED_MODEL
from weavegen.monitoring.progress import seconds_left
from weavegen.store import reports
from weavegen.store.reports import JobRow

LISTED = 50
"""Jobs on a page."""
PAGE = 100
"""Traces on a page."""


@dataclass(frozen=True)
class JobView:
    """A job with how far it is."""

    row: JobRow
    blocks_now: float | None = None
    """A second, over the last moments; None: not looked at long enough."""
    tokens_now: float | None = None

    @property
    def agent(self) -> str:
        return self.row.agent

    @property
    def model(self) -> str | None:
        return self.row.model

    @property
    def simulated(self) -> bool:
        """Written by the simulated model: what it says means nothing."""
        return is_simulated(self.row.model)

    @property
    def called_by(self) -> int | None:
        return self.row.called_by

    @property
    def progress(self) -> float:
        return self.row.progress

    @property
    def seconds_left(self) -> float | None:
        return seconds_left(self.row)

    @property
    def blocks_mean(self) -> float | None:
        """A second, over the job's time."""
        return self.row.blocks / self.row.seconds if self.row.seconds else None

    @property
    def tokens_mean(self) -> float | None:
        """Sampled a second, over the job's time."""
        return self.row.sampled_tokens / self.row.seconds if self.row.seconds else None


def jobs(conn: sa.Connection, job_id: int | None = None) -> list[JobView]:
    """The latest jobs, or one. Raises UsageError if there is no such job."""
    return [JobView(row) for row in reports.jobs(conn, job_id, LISTED)]


def is_simulated(model: str | None) -> bool:
    """Whether the name is that of the simulated model."""
    return model == SIMULATED_MODEL


def simulated(conn: sa.Connection, job_ids: set[int]) -> set[int]:
    """Those of these jobs that the simulated model writes."""
    query = "select id from jobs where id = any(:ids) and model = :model"
    return set(conn.execute(sa.text(query), {"ids": list(job_ids), "model": SIMULATED_MODEL}).scalars())


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
