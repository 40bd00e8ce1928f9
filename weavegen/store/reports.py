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
    agent: str
    model: str | None
    """None: none was asked yet."""
    user: str | None
    """Who enqueued it; None: that was not kept yet."""
    called_by: int | None
    """The job whose traces ask for those of this one; None: people enqueued it."""
    progress: float
    """0 to 1: of each trace that runs, the share of the budget that is spent most; where the settings name none,
    of the blocks that the job's traces ended with, in the mean."""
    paused_seconds: float
    """For how long it was paused, in pauses that are over."""
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


JOB_ROWS = """
with listed as (
  select j.*, coalesce(
    (select r.settings from job_settings r where r.job_id = j.id order by r.revision desc limit 1), j.settings
  ) as newest
  from jobs j where {which} and exists (select from traces t where t.job_id = j.id)
  order by j.id desc limit :limit
), budgeted as (
  select l.*, {budgets} from listed l
), jobs_told as (
  select *, coalesce(most_ticks, most_blocks, most_until_bytes, most_sampled_tokens) is not null as limited
  from budgeted
)
select j.id, j.name, s.queued, s.running, s.ended, s.failed, s.cancelled, s.blocks, s.bytes, s.sampled_tokens,
  s.candidates_per_block, s.seconds, j.state, j.paused_at, j.revision, j.agent, j.model, j.enqueued_by as "user",
  j.called_by,
  (s.ended + s.failed + s.cancelled + coalesce(
    s.spent, case when s.running > 0 and s.usual_blocks > 0 then
      s.running * least(0.99, s.running_blocks / s.running / s.usual_blocks) end, 0
  )) / (s.queued + s.running + s.ended + s.failed + s.cancelled) as progress,
  j.paused_seconds
from jobs_told j cross join lateral (
  select
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
    sum(least(0.99, greatest(
      t.ticks / j.most_ticks, t.blocks / j.most_blocks, t.bytes / j.most_until_bytes,
      t.sampled_tokens / j.most_sampled_tokens
    ))) filter (where t.status = 'running' and j.limited) spent,
    sum(t.blocks) filter (where t.status = 'running')::double precision running_blocks,
    avg(t.blocks) filter (where t.status = 'ended')::double precision usual_blocks
  from traces t where t.job_id = j.id
) s order by j.id desc
"""
BUDGETS = ("ticks", "blocks", "until_bytes", "sampled_tokens")
"""Settings that end a trace. Numbers alone count: what another version wrote need not have our shape."""
BUDGET = """
  case when jsonb_typeof(l.newest -> '{0}') = 'number' then nullif((l.newest -> '{0}')::float, 0) end most_{0}
"""
OPEN = """(
  exists (select from traces t where t.job_id = j.id and t.status = 'queued')
  or j.id in (select t.job_id from traces t where t.status = 'running')
)"""


def jobs(
    conn: sa.Connection, job_id: int | None = None, limit: int = 50, *, only_open: bool = False
) -> list[JobRow]:
    """The latest jobs, newest first; or one. Raises UsageError if there is no such job.

    It reads all rows of their traces: half a second for a million.
    """
    # Put together, so that each has a plan of its own: one for all cases would read every trace there is.
    which = "j.id = :job" if job_id is not None else OPEN if only_open else "true"
    query = JOB_ROWS.format(which=which, budgets=", ".join(map(BUDGET.format, BUDGETS)))
    rows = conn.execute(sa.text(query), {"limit": limit} | ({} if job_id is None else {"job": job_id})).all()
    if job_id is not None and not rows:
        raise UsageError(f"there is no job {job_id}: `weavegen status` lists them")
    tuned = _retunes(conn, [row.id for row in rows])
    return [JobRow(**row._mapping, retunes=tuned[row.id]) for row in rows]


def latest(conn: sa.Connection) -> int:
    """Id of the newest job that people enqueued. Raises UsageError where there is none."""
    query = sa.select(sa.func.max(JOBS.c.id)).where(JOBS.c.called_by.is_(None))
    found: int | None = conn.execute(query).scalar_one()
    if found is None:
        raise UsageError("there is no job yet: `weavegen run bootstraps/tictactoe.py -n 8 --ticks 12` makes one")
    return found


@dataclass(frozen=True)
class Troubles:
    """What a job loses on its way."""

    kept_share: float | None
    """Tokens of recorded blocks as a share of all that were sampled; None before any were."""
    raised: int | None
    """Blocks whose code raised; None: that could not be told in time."""
    repeated: int | None
    """Steps that were taken more than once: tried again, or their worker fell silent. None likewise."""


KEPT_OF = 1_000
"""Traces that the share of kept tokens is taken from, where a job has begun more; evenly spread over it."""
TROUBLES = """
with sample as (
  select id, sampled_tokens, coalesce(fork_at, 0) as own from traces
  where job_id = :job and number in (select generate_series(1, :begun, 1 + (:begun - 1) / :most))
)
select
  (
    select sum(c.tokens) from sample t
    join blocks b on b.trace_id = t.id and b.index >= t.own join candidates c on c.id = b.candidate_id
  )::double precision / nullif((select sum(sampled_tokens) from sample), 0) as kept_share,
  (
    select count(*) from traces t join blocks b on b.trace_id = t.id and b.index >= coalesce(t.fork_at, 0)
    where t.job_id = :job and not b.ran
  ) as raised,
  (
    select count(*) from traces t join steps s on s.trace_id = t.id
    where t.job_id = :job and s.claims > 1 and s.copy_of is null
  ) as repeated
"""


def troubles(conn: sa.Connection, job: JobRow, seconds: float = 5.0) -> Troubles:
    """What a job loses, read from its blocks, candidates and steps: dearer than its sums.

    In a transaction of its own. What takes longer than `seconds` is not known.
    """
    asked = {"job": job.id, "begun": max(1, job.traces - job.queued), "most": KEPT_OF}
    try:
        with conn.begin():
            conn.execute(sa.text(f"set local statement_timeout = {int(seconds * 1000)}"))
            return Troubles(*conn.execute(sa.text(TROUBLES), asked).one())
    except sa.exc.OperationalError as error:
        if not isinstance(error.orig, psycopg.errors.QueryCanceled):
            raise
        return Troubles(None, None, None)


def worked_on(conn: sa.Connection, job_id: int) -> bool:
    """Whether a worker holds one of its steps right now."""
    query = """
        select exists (
          select from steps s join traces t on t.id = s.trace_id
          where t.job_id = :job and s.status = 'running' and s.lease_until > clock_timestamp()
        )
    """
    return bool(conn.execute(sa.text(query), {"job": job_id}).scalar_one())


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


def traces(
    conn: sa.Connection, job_id: int, limit: int | None = None, *, status: str | None = None
) -> list[TraceRow]:
    """A job's traces, in order; with `status` those of one. Only the rows that are asked for are read."""
    # The rest is looked up for the rows that are told. The status is part of the text, and ids are in the order of
    # numbers: of those that run there is an index by both.
    rows = conn.execute(
        sa.text(
            f"""
            with told as materialized (
              select * from traces where job_id = :job {"" if status is None else f"and status = '{status}'"}
              order by {"number" if status is None else "id"} limit :limit
            )
            select t.id, t.number, b.name, t.status,
              coalesce(t.ended_because, t.failure_kind || ': ' || t.failure),
              t.ticks, t.blocks, t.bytes, t.sampled_tokens,
              round(t.candidates::numeric / nullif(t.written, 0), 2)::double precision,
              case when jsonb_typeof(t.returned) = 'object' then coalesce(t.returned ->> 'result',
                case t.returned -> 'success' when 'true' then 'success' when 'false' then 'no success' end) end,
              t.fork_of, t.fork_at, t.retry_of, coalesce(r.ids, '{{}}'),
              not exists (select from events e where e.trace_id = t.id and e.kind = 'not isolated')
            from told t join bootstraps b on b.id = t.bootstrap_id
            left join lateral (
              select array_agg(r.id order by r.id) ids from traces r where r.job_id = :job and r.retry_of = t.id
            ) r on true
            order by t.number
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
