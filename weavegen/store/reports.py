"""What people ask about jobs and traces, as rows. Read-only."""

import contextlib
import datetime
import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
import sqlalchemy as sa

from weavegen import config
from weavegen.errors import UsageError
from weavegen.services.postgres import READER, reader_url
from weavegen.store import models as m

BLOCKS, TRACES = m.table(m.Block), m.table(m.Trace)
JOBS, JOB_SETTINGS = m.table(m.Job), m.table(m.JobSettings)


@dataclass(frozen=True)
class Retune:
    """A later revision of a job's settings."""

    revision: int
    """From 1."""
    created_at: datetime.datetime
    changed: dict[str, Any]
    """What differs from the revision before, with its new value: by KEY, or TYPE.KEY for one block type."""


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
    """Those that forks share with others are not counted."""
    bytes: int
    """Likewise."""
    sampled_tokens: int
    candidates_per_block: float | None
    """Candidates (in a tree search nodes) sampled, for each block made of one; None before the first."""
    seconds: float
    """From the first trace's start to the last one's end, or to now."""
    state: str
    """active, paused or draining."""
    paused_at: datetime.datetime | None
    """None: it is not paused."""
    revision: int
    """Of its settings; 0: as it was enqueued."""
    retunes: list[Retune]
    """The revisions after 0, in order."""

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
    fork_of: int | None
    """Id of the trace that it goes on from."""
    fork_at: int | None
    """Index of the first block that is its own."""
    retry_of: int | None
    """Id of the trace that it does over."""
    retried_as: list[int]
    """Ids of the traces that do it over, in order."""
    isolated: bool
    """False: some of its code ran outside a sandbox."""


def traces_by_server(conn: sa.Connection) -> dict[str, int]:
    """How many running traces stick to each model server."""
    rows = conn.execute(
        sa.select(TRACES.c.server, sa.func.count().label("traces"))
        .where(TRACES.c.status == m.TraceStatus.RUNNING, TRACES.c.server.is_not(None))
        .group_by(TRACES.c.server)
    )
    return {row.server: row.traces for row in rows}


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
              sum(greatest(0, t.blocks - coalesce(t.fork_at, 0)))::bigint blocks,
              sum(t.bytes - t.shared_bytes)::bigint bytes,
              sum(t.sampled_tokens)::bigint sampled_tokens,
              round(sum(t.candidates) / nullif(sum(t.written), 0), 2)::double precision candidates_per_block,
              coalesce(extract(epoch from (
                case when bool_or(t.status in ('queued', 'running')) then now() else max(t.finished_at) end
              ) - min(t.started_at)), 0)::double precision seconds,
              j.state, j.paused_at, j.revision
            from jobs j join traces t on t.job_id = j.id
            where (cast(:job as bigint) is null or j.id = :job)
            group by j.id order by j.id desc limit :limit
            """
        ),
        {"job": job_id, "limit": limit},
    ).all()
    if job_id is not None and not rows:
        raise UsageError(f"there is no job {job_id}: `weavegen status` lists them")
    tuned = _retunes(conn, [row.id for row in rows])
    return [JobRow(**row._mapping, retunes=tuned[row.id]) for row in rows]


def _retunes(conn: sa.Connection, job_ids: Sequence[int]) -> dict[int, list[Retune]]:
    """The revisions of these jobs' settings, in order, by job."""
    first = sa.select(JOBS.c.id, sa.literal(0).label("revision"), JOBS.c.created_at, JOBS.c.settings)
    later = sa.select(*JOB_SETTINGS.c["job_id", "revision", "created_at", "settings"])
    both = sa.union_all(first.where(JOBS.c.id.in_(job_ids)), later.where(JOB_SETTINGS.c.job_id.in_(job_ids)))
    found: dict[int, list[Retune]] = {job_id: [] for job_id in job_ids}
    before: dict[str, Any] = {}
    for job_id, revision, created_at, settings in conn.execute(both.order_by("id", "revision")):
        after = _flat(settings)
        if revision:
            changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
            found[job_id].append(Retune(revision, created_at, changed))
        before = after
    return found


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with KEY of a block type as TYPE.KEY. What another version wrote need not have our shape."""
    flat = {key: value for key, value in settings.items() if key != "types"}
    types = settings.get("types")
    for type, own in types.items() if isinstance(types, dict) else ():
        flat |= {f"{type}.{key}": value for key, value in own.items()} if isinstance(own, dict) else {type: own}
    return flat


def traces(conn: sa.Connection, job_id: int, limit: int | None = None) -> list[TraceRow]:
    """A job's traces, in order."""
    rows = conn.execute(
        sa.text(
            """
            select t.id, t.number, b.name, t.status,
              coalesce(t.ended_because, t.failure_kind || ': ' || t.failure),
              t.ticks, t.blocks, t.bytes, t.sampled_tokens,
              round(t.candidates::numeric / nullif(t.written, 0), 2)::double precision,
              case when jsonb_typeof(t.returned) = 'object' then coalesce(t.returned ->> 'result',
                case t.returned -> 'success' when 'true' then 'success' when 'false' then 'no success' end) end,
              t.fork_of, t.fork_at, t.retry_of, coalesce(r.ids, '{}'),
              not exists (select from events e where e.trace_id = t.id and e.kind = 'not isolated')
            from traces t join bootstraps b on b.id = t.bootstrap_id
            left join (
              select retry_of, array_agg(id order by id) ids from traces
              where job_id = :job and retry_of is not null group by retry_of
            ) r on r.retry_of = t.id
            where t.job_id = :job order by t.number limit :limit
            """
        ),
        {"job": job_id, "limit": limit},
    )
    return [TraceRow(*row) for row in rows]


def materialised(conn: sa.Connection, query: str) -> dict[str, float]:
    """How many seconds old the rows are of the materialised views that a query names."""
    named = set(re.findall(r"\w+", query))
    rows = conn.execute(sa.text("select name, seconds_ago from freshness order by name"))
    return {row.name: row.seconds_ago for row in rows if row.name in named}


def blocks(conn: sa.Connection, trace_id: int, chunk: int = 200) -> sa.ScalarResult[str]:
    """A trace's rendered blocks, in order, streamed. Raises UsageError if there is no such trace."""
    if conn.execute(sa.select(TRACES.c.id).where(TRACES.c.id == trace_id)).one_or_none() is None:
        raise UsageError(f"there is no trace {trace_id}: `weavegen status JOB` lists a job's traces")
    query = sa.select(BLOCKS.c.rendered).where(BLOCKS.c.trace_id == trace_id).order_by(BLOCKS.c.index)
    return conn.execution_options(yield_per=chunk).execute(query).scalars()


def select(
    conn: sa.Connection, query: str, seconds: float, limit: int | None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and the first `limit` rows of a user's query, as `answer` gives them. Raises UsageError."""
    with answer(conn, query, seconds) as (columns, rows):
        return columns, list(itertools.islice(rows, limit))


@contextlib.contextmanager
def answer(
    conn: sa.Connection, query: str, seconds: float
) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Columns and rows of a user's query to the database of `conn`; the rows come as they are taken.

    It runs in a session and a read-only transaction of its own, logged in as the reader: a session that had only
    been switched to that role could be switched back from inside a SELECT, by set_config. Raises UsageError, also
    while rows are taken.
    """
    url = reader_url(config.load(), conn.engine.url)
    reader = sa.create_engine(url, poolclass=sa.NullPool, connect_args={"connect_timeout": 5})
    try:
        with reader.connect() as own:
            own.execute(sa.text("set transaction read only"))
            own.execute(sa.text(f"set local statement_timeout = {max(1, int(seconds * 1000))}"))
            if url == conn.engine.url:
                _become_reader(own)
            driver = own.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            query = query.strip().rstrip(";")
            columns = _columns(driver, query)
            # Closed first of all: a query whose rows were not all taken is cancelled by that.
            with contextlib.closing(
                cast(Generator[tuple[Any, ...], None, None], driver.cursor().stream(query))
            ) as rows:
                yield columns, rows
    except (sa.exc.DBAPIError, psycopg.Error) as error:
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise UsageError(f"the query failed: {' '.join(str(reason).split())}") from None
    except RecursionError:
        raise UsageError("the query failed: a JSON value is nested too deeply, select it as text") from None


def narrowed(query: str, where: str | None, rest: str = "") -> str:
    """A query that ends in a condition of ours, narrowed by a user's own; `rest` goes behind it.

    The user's stands on lines of its own, so that a comment at its end comments out nothing of ours. It may still
    close what we opened, or open more: take what is found for keys that are only ever looked up again, or read it
    only.
    """
    return f"{query} and (\n{'true' if where is None else where}\n)\n{rest}"


def matching(
    conn: sa.Connection, query: str, where: str | None, seconds: float, rest: str = ""
) -> list[tuple[Any, ...]]:
    """All rows of such a query, as `answer` gives them. Raises UsageError, which says that it is about --where."""
    try:
        return select(conn, narrowed(query, where, rest), seconds, None)[1]
    except UsageError as error:
        raise UsageError(f"--where: {error}" if where is not None else str(error)) from None


def _columns(driver: psycopg.Connection[Any], query: str) -> list[str]:
    """Names of a query's columns. Nothing is executed. Raises psycopg.Error where it is not one statement."""
    for found in (driver.pgconn.prepare(b"", query.encode()), driver.pgconn.describe_prepared(b"")):
        if found.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(found)
    if found.nfields == 0:
        raise UsageError("the query would give no rows, and this is read-only: give one SELECT")
    return [(found.fname(number) or b"").decode() for number in range(found.nfields)]


def _become_reader(conn: sa.Connection) -> None:
    """For a database of the user's own, where nobody has said how to log in as one who can only read.

    A query can leave this role again and be DATABASE_URL's user, in a read-only transaction. Raises UsageError
    where that is a superuser, who can do everything even there.
    """
    if conn.execute(sa.text("select rolsuper from pg_roles where rolname = session_user")).scalar_one():
        raise UsageError(
            "DATABASE_URL's user is a superuser, whom nothing holds back: give the role a password (alter role "
            f"{READER} login password '...') and set WEAVEGEN_READER_URL to the database's URL with that role"
        )
    conn.execute(sa.text(f"set local role {READER}"))
