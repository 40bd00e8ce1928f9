"""What people ask about jobs and traces, as rows. Read-only."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.store import models as m

BLOCKS, TRACES = m.table(m.Block), m.table(m.Trace)
READER = "weavegen_reader"


@dataclass(frozen=True)
class JobRow:
    """A job, summed up."""

    id: int
    name: str
    queued: int
    running: int
    ended: int
    failed: int
    cancelled: int
    blocks: int
    bytes: int
    sampled_tokens: int
    candidates_per_block: float | None
    """Candidates (in a tree search nodes) sampled, for each block made of one; None before the first."""
    seconds: float
    """From the first trace's start to the last one's end, or to now."""

    @property
    def traces(self) -> int:
        return self.queued + self.running + self.ended + self.failed + self.cancelled

    @property
    def open(self) -> int:
        return self.queued + self.running


@dataclass(frozen=True)
class TraceRow:
    """A trace, summed up."""

    id: int
    number: int
    bootstrap: str
    status: str
    because: str | None
    ticks: int
    blocks: int
    bytes: int
    sampled_tokens: int
    candidates_per_block: float | None
    """Candidates (in a tree search nodes) sampled, for each block made of one; None before the first."""
    result: str | None
    """`result` of what the agent returned, if it is text: for a game, won, drawn or lost."""


def traces_by_server(conn: sa.Connection) -> dict[str, int]:
    """How many running traces stick to each model server."""
    rows = conn.execute(
        sa.select(TRACES.c.server, sa.func.count())
        .where(TRACES.c.status == m.TraceStatus.RUNNING, TRACES.c.server.is_not(None))
        .group_by(TRACES.c.server)
    )
    return dict(rows.tuples().all())


def jobs(conn: sa.Connection, job_id: int | None = None, limit: int = 50) -> list[JobRow]:
    """The latest jobs, newest first; or one. Raises UsageError if there is no such job."""
    rows = conn.execute(
        sa.text(
            """
            select j.id, j.name,
              count(*) filter (where t.status = 'queued') queued,
              count(*) filter (where t.status = 'running') running,
              count(*) filter (where t.status = 'ended') ended,
              count(*) filter (where t.status = 'failed') failed,
              count(*) filter (where t.status = 'cancelled') cancelled,
              sum(t.blocks)::bigint blocks, sum(t.bytes)::bigint bytes, sum(t.sampled_tokens)::bigint tokens,
              round(sum(t.candidates) / nullif(sum(t.written), 0), 2)::double precision candidates_per_block,
              coalesce(extract(epoch from (
                case when bool_or(t.status in ('queued', 'running')) then now() else max(t.finished_at) end
              ) - min(t.started_at)), 0)::double precision seconds
            from jobs j join traces t on t.job_id = j.id
            where (cast(:job as bigint) is null or j.id = :job)
            group by j.id order by j.id desc limit :limit
            """
        ),
        {"job": job_id, "limit": limit},
    ).all()
    if job_id is not None and not rows:
        raise UsageError(f"there is no job {job_id}: `weavegen status` lists them")
    return [JobRow(*row) for row in rows]


def traces(conn: sa.Connection, job_id: int, limit: int | None = None) -> list[TraceRow]:
    """A job's traces, in order."""
    rows = conn.execute(
        sa.text(
            """
            select t.id, t.number, b.name, t.status,
              coalesce(t.ended_because, t.failure_kind || ': ' || t.failure),
              t.ticks, t.blocks, t.bytes, t.sampled_tokens,
              round(t.candidates::numeric / nullif(t.written, 0), 2)::double precision,
              case when jsonb_typeof(t.returned) = 'object' then t.returned ->> 'result' end
            from traces t join bootstraps b on b.id = t.bootstrap_id
            where t.job_id = :job order by t.number limit :limit
            """
        ),
        {"job": job_id, "limit": limit},
    )
    return [TraceRow(*row) for row in rows]


def blocks(conn: sa.Connection, trace_id: int, chunk: int = 200) -> sa.ScalarResult[str]:
    """A trace's rendered blocks, in order, streamed. Raises UsageError if there is no such trace."""
    if conn.execute(sa.select(TRACES.c.id).where(TRACES.c.id == trace_id)).one_or_none() is None:
        raise UsageError(f"there is no trace {trace_id}: `weavegen status JOB` lists a job's traces")
    query = sa.select(BLOCKS.c.rendered).where(BLOCKS.c.trace_id == trace_id).order_by(BLOCKS.c.index)
    return conn.execution_options(yield_per=chunk).execute(query).scalars()


def select(conn: sa.Connection, query: str, seconds: float, limit: int | None) -> tuple[list[str], Sequence[Any]]:
    """Columns and rows of a user's query, which can read and nothing else. Raises UsageError."""
    try:
        conn.execute(sa.text(f"set local statement_timeout = {int(seconds * 1000)}"))
        conn.execute(sa.text(f"set local role {READER}"))
        conn.execute(sa.text("set transaction read only"))
        # Prepared, so that it is one statement: nothing can follow that leaves the role or the transaction.
        driver = conn.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor:
            cursor.execute(query.strip().rstrip(";"), prepare=True)
            if cursor.description is None:
                return [], []
            return [column.name for column in cursor.description], (
                cursor.fetchall() if limit is None else cursor.fetchmany(limit)
            )
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        raise UsageError(f"the query failed: {' '.join(str(error).split())}") from None
