"""What people ask about jobs and traces, as rows; and their own SQL queries. Read-only."""

import contextlib
import datetime
import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import psycopg
from psycopg.rows import tuple_row

from weavegen import config, sql
from weavegen.database import Connection
from weavegen.errors import UsageError, required
from weavegen.store.session import read_only
from weavegen.store.states import TraceStatus
from weavegen.store.urls import READER


@dataclass(frozen=True)
class Retune:
    """A later revision of a job's settings."""

    revision: int
    """Counted from 1."""
    created_at: datetime.datetime
    changed: dict[str, Any]
    """New values by KEY, or by TYPE.KEY for one block type."""


@dataclass(frozen=True)
class JobRow:
    """A job with sums over its traces."""

    id: int
    name: str
    queued: int
    running: int
    ended: int
    failed: int
    cancelled: int
    blocks: int
    """Blocks that forks copied from other traces are not counted, here and in `bytes`."""
    bytes: int
    sampled_tokens: int
    candidates_per_block: float | None
    """Candidates (in a tree search: nodes) sampled for each block made of one; None before the first."""
    seconds: float
    """From the first trace's start to the last one's end, or to now."""
    state: str
    """active, paused or draining."""
    paused_at: datetime.datetime | None
    """None: it is not paused."""
    pause_reason: str | None
    """Why weavegen paused it; None: it is not paused, or a person paused it."""
    revision: int
    """Revision of its settings; 0: as it was enqueued."""
    agent: str
    model: str | None
    """None: no model was asked yet."""
    user: str | None
    """Who enqueued it; None: it was enqueued by an older version, which did not record that."""
    called_by: int | None
    """The job whose traces delegate to the traces of this one; None: people enqueued it."""
    progress: float
    """0 to 1. A running trace counts with the budget that it has spent most of. Without budgets it counts with its
    blocks, as a share of the mean number of blocks of the job's ended traces."""
    paused_seconds: float
    """How long it was paused, in pauses that are over."""
    retunes: list[Retune]
    """The revisions after 0, in order."""

    @property
    def traces(self) -> int:
        return self.queued + self.running + self.ended + self.failed + self.cancelled

    @property
    def open(self) -> int:
        return self.queued + self.running


JOBS = 50
"""Maximum jobs in a list."""


def jobs(
    conn: Connection, job_id: int | None = None, *, only_open: bool = False, before: int | None = None
) -> list[JobRow]:
    """The latest jobs, newest first, or the latest before a job; or one job. Raises UsageError if it does not exist.

    It reads all rows of their traces: half a second for a million.
    """
    listed = sql.run(conn, "store/listed_jobs", job=job_id, only_open=only_open, before=before, limit=JOBS)
    rows = sql.run(conn, "store/job_rows", jobs=listed.scalars()).all()
    if job_id is not None and not rows:
        raise UsageError(f"there is no job {job_id}: `weavegen status` lists them")
    retunes = _retunes(conn, [row.id for row in rows])
    return [JobRow(**row._asdict(), retunes=retunes[row.id]) for row in rows]


def _retunes(conn: Connection, job_ids: list[int]) -> dict[int, list[Retune]]:
    """The revisions of these jobs' settings, in order, by job."""
    retunes: dict[int, list[Retune]] = {job_id: [] for job_id in job_ids}
    before: dict[str, Any] = {}
    for job_id, revision, created_at, settings in sql.run(conn, "store/revisions", jobs=job_ids):
        after = flat(settings)
        if revision:
            changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
            retunes[job_id].append(Retune(revision, created_at, changed))
        before = after
    return retunes


def flat(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with KEY of a block type as TYPE.KEY. Another version may have written another form."""
    flat = {key: value for key, value in settings.items() if key != "types"}
    types = settings.get("types")
    for type, own in types.items() if isinstance(types, dict) else ():
        flat |= {f"{type}.{key}": value for key, value in own.items()} if isinstance(own, dict) else {type: own}
    return flat


def latest(conn: Connection) -> int:
    """Id of the newest job that people enqueued. Raises UsageError where there is none."""
    newest: int | None = sql.run(conn, "store/latest_job").scalar_one()
    return required(newest, "there is no job yet: `weavegen run bootstraps/tictactoe.py -n 8 --ticks 12` makes one")


@dataclass(frozen=True)
class Troubles:
    """What goes wrong in a job."""

    kept_share: float | None
    """Tokens of recorded blocks as a share of all sampled tokens; None before any were sampled."""
    raised: int | None
    """Blocks whose code raised; None: counting them took too long."""
    repeated: int | None
    """Steps that were claimed more than once; None: counting them took too long."""


def limit_time(conn: Connection, seconds: float) -> None:
    """Limit the time of each statement until the transaction ends."""
    conn.execute(sql.load("store/limit_time", milliseconds=str(int(seconds * 1000))))


MAX_SAMPLED_TRACES = 1_000
"""Traces that the share of kept tokens is read from. In a larger job they are evenly spread over it."""


def troubles(conn: Connection, job: JobRow, seconds: float = 5.0) -> Troubles:
    """What goes wrong in a job, in a transaction of its own. Slower than `jobs`; gives up after `seconds`."""
    parameters = {"job": job.id, "begun": max(1, job.traces - job.queued), "most": MAX_SAMPLED_TRACES}
    try:
        with conn.transaction():
            limit_time(conn, seconds)
            return Troubles(*sql.run(conn, "store/job_losses", **parameters).one())
    except psycopg.errors.QueryCanceled:
        return Troubles(None, None, None)


def traces(
    conn: Connection, job_id: int, limit: int | None = None, *, status: TraceStatus | str | None = None
) -> Sequence[Any]:
    """Rows of trace_rows.sql: a job's traces, in order; or only those with one status. Reads no more than these."""
    # The status is part of the text, and ids are in the order of numbers: running traces have an index by both.
    which = "true" if status is None else f"status = '{TraceStatus(status)}'"
    query = sql.load("store/trace_rows", which=which, order="number" if status is None else "id")
    return conn.execute(query, {"job": job_id, "limit": limit}).all()


def traces_by_server(conn: Connection) -> dict[str, int]:
    """How many running traces each model server has."""
    return {row.server: row.traces for row in sql.run(conn, "store/traces_by_server")}


def blocks(conn: Connection, trace_id: int, chunk: int = 200) -> Generator[str]:
    """A trace's rendered blocks, in order, streamed. Raises UsageError if there is no such trace."""
    if not sql.run(conn, "store/trace_exists", trace=trace_id).scalar_one():
        raise UsageError(f"there is no trace {trace_id}: `weavegen status JOB` lists a job's traces")
    every = {"trace": trace_id, "first": 0, "end": 2**63 - 1}
    return (row.rendered for row in conn.stream(sql.load("store/rendered_blocks"), every, chunk))


def materialised(conn: Connection, query: str) -> dict[str, float]:
    """Age in seconds of the rows of each materialised view that a query names."""
    named = set(re.findall(r"\w+", query))
    return {row.name: row.seconds_ago for row in sql.run(conn, "store/freshness") if row.name in named}


def select(conn: Connection, query: str, seconds: float, limit: int | None) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and the first `limit` rows of a user's query, as `answer` gives them. Raises UsageError."""
    with answer(conn, query, seconds) as (columns, rows):
        return columns, list(itertools.islice(rows, limit))


@contextlib.contextmanager
def answer(conn: Connection, query: str, seconds: float) -> Iterator[tuple[list[str], Iterator[tuple[Any, ...]]]]:
    """Columns and rows of a user's query to the database of `conn`. The rows are streamed.

    The query runs in a session and a read-only transaction of its own, logged in as the reader: a session that was
    only switched to that role could be switched back from inside a SELECT, by set_config. Raises UsageError, also
    while rows are read.
    """
    database = read_only(config.load(), conn.database.url, seconds, keep=False)
    try:
        with database.connect() as own:
            _require_no_superuser(own)
            query = query.strip().rstrip(";")
            columns = _columns(own, query)
            # Closing the cursor cancels a query whose rows were not all read.
            stream = cast(Generator[tuple[Any, ...], None, None], own.cursor(row_factory=tuple_row).stream(query))
            with contextlib.closing(stream) as rows:
                yield columns, rows
    except psycopg.Error as error:
        raise UsageError(f"the query failed: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise UsageError("the query failed: a JSON value is nested too deeply, select it as text") from None


def narrowed(query: str, where: str | None, rest: str = "") -> str:
    """A query that ends in a condition, with the user's condition `where` added, and `rest` after it.

    The user's condition stands on lines of its own, so that a comment in it can't hide `rest`. It may still close
    our parenthesis: use the rows only as keys that are looked up again, or for reading.
    """
    return f"{query} and (\n{'true' if where is None else where}\n)\n{rest}"


def matching(conn: Connection, query: str, where: str | None, seconds: float, rest: str = "") -> list[tuple[Any, ...]]:
    """All rows of a query that `narrowed` made. Raises UsageError, which names the option --where."""
    try:
        return select(conn, narrowed(query, where, rest), seconds, None)[1]
    except UsageError as error:
        raise UsageError(f"--where: {error}" if where is not None else str(error)) from None


def _columns(conn: Connection, query: str) -> list[str]:
    """Names of a query's columns, without executing it. Raises psycopg.Error where it is not one statement."""
    for result in (conn.pgconn.prepare(b"", query.encode()), conn.pgconn.describe_prepared(b"")):
        if result.status != psycopg.pq.ExecStatus.COMMAND_OK:
            raise psycopg.errors.error_from_result(result)
    if result.nfields == 0:
        raise UsageError("the query would give no rows, and this is read-only: give one SELECT")
    return [(result.fname(number) or b"").decode() for number in range(result.nfields)]


def _require_no_superuser(conn: Connection) -> None:
    """Raise UsageError for a superuser, perhaps of DATABASE_URL, whom a read-only transaction does not restrict."""
    if sql.run(conn, "store/login_is_superuser").scalar_one():
        raise UsageError(
            "DATABASE_URL's user is a superuser, whom nothing restricts: give the role a password (alter role "
            f"{READER} login password '...') and set WEAVEGEN_READER_URL to the database's URL with that role"
        )
