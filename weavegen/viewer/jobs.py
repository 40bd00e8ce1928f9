"""Jobs and their traces, as the viewer lists them."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.monitoring.progress import seconds_left
from weavegen.store import reports
from weavegen.store.reports import JobRow

MAX_JOBS = 50
TRACES_PER_PAGE = 100


@dataclass(frozen=True)
class JobView:
    """A job with its rates and its estimated end."""

    row: JobRow
    blocks_now: float | None = None
    """Blocks a second in the last moments. None before two readings."""
    tokens_now: float | None = None
    """Sampled tokens a second, likewise."""

    @property
    def simulated(self) -> bool:
        """Whether the simulated model writes the texts."""
        return self.row.model == SIMULATED_MODEL

    @property
    def seconds_left(self) -> float | None:
        return seconds_left(self.row)

    @property
    def blocks_mean(self) -> float | None:
        """Blocks a second since the job's start."""
        return self.row.blocks / self.row.seconds if self.row.seconds else None

    @property
    def tokens_mean(self) -> float | None:
        """Sampled tokens a second since the job's start."""
        return self.row.sampled_tokens / self.row.seconds if self.row.seconds else None


def jobs(conn: sa.Connection, job_id: int | None = None) -> list[JobView]:
    """The latest jobs, or one job. Raises UsageError if there is no such job."""
    return [JobView(row) for row in reports.jobs(conn, job_id, MAX_JOBS)]


def simulated(conn: sa.Connection, job_ids: set[int]) -> set[int]:
    """The jobs among `job_ids` whose texts the simulated model writes."""
    query = sa.text("select id from jobs where id = any(:ids) and model = :model")
    return set(conn.execute(query, {"ids": list(job_ids), "model": SIMULATED_MODEL}).scalars())


def traces(conn: sa.Connection, job_id: int, status: str | None, page: int) -> list[dict[str, Any]]:
    """A page of a job's traces by number, with one trace more than TRACES_PER_PAGE if there is a next page."""
    page_of = {"limit": TRACES_PER_PAGE + 1, "offset": page * TRACES_PER_PAGE}
    rows = conn.execute(sql.load("viewer/job_traces"), {"job": job_id, "status": status, **page_of})
    return [dict(row._mapping) for row in rows]


def settings(conn: sa.Connection, job_id: int) -> dict[str, Any]:
    """Seed, version, user, time of enqueueing, and the settings that differ from the defaults."""
    query = sa.text("select seed, version, enqueued_by, created_at, settings from jobs where id = :job")
    return dict(conn.execute(query, {"job": job_id}).one()._mapping)
