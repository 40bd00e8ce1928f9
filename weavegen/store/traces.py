"""Traces in Postgres: queued, started fairly, locked while they advance, ended."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen import __version__
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel.replay import InheritedSettings, Start
from weavegen.kernel.settings import Settings, settings
from weavegen.store import models as m
from weavegen.store import reports
from weavegen.store.models import JobState, TraceStatus
from weavegen.trace.blocks import BlockType

JOBS, JOB_SETTINGS, BOOTSTRAPS, TRACES, TICKS, EVENTS = map(
    m.table, (m.Job, m.JobSettings, m.Bootstrap, m.Trace, m.Tick, m.Event)
)
OVER = (TraceStatus.ENDED, TraceStatus.FAILED, TraceStatus.CANCELLED)
START_LOCK = 0x77656176
"""Advisory lock under which queued traces are started, so that no more than allowed do."""


@dataclass(frozen=True)
class TraceSpec:
    """What never changes about a trace under one revision of its job's settings; workers keep it in memory."""

    seed: int
    """Its environment's: a fork's begins with that of the trace which its line of forks began with."""
    agent: str
    model: str | None
    settings: Settings
    params: dict[str, Any]
    bootstrap: str


FIRST_SEED = """
with recursive line as (
  select seed, fork_of from traces where id = :trace
  union all
  select t.seed, t.fork_of from traces t join line on line.fork_of = t.id
)
select seed from line where fork_of is null
"""


def spec(conn: sa.Connection, trace_id: int, revision: int) -> TraceSpec:
    """Read a trace's unchanging part. Raises RolloutError where this version can't read its job's settings."""
    row = conn.execute(
        sa.select(
            TRACES.c.seed,
            TRACES.c.fork_of,
            TRACES.c.params,
            TRACES.c.job_id,
            JOBS.c.agent,
            JOBS.c.asked_model.label("model"),
            sa.func.coalesce(JOB_SETTINGS.c.settings, JOBS.c.settings).label("settings"),
            BOOTSTRAPS.c.source,
        )
        .join(JOBS, JOBS.c.id == TRACES.c.job_id)
        .join(BOOTSTRAPS, BOOTSTRAPS.c.id == TRACES.c.bootstrap_id)
        .outerjoin(
            JOB_SETTINGS, (JOB_SETTINGS.c.job_id == TRACES.c.job_id) & (JOB_SETTINGS.c.revision == revision)
        )
        .where(TRACES.c.id == trace_id)
    ).one()
    try:
        numbers = settings(row.settings)
    except UsageError as error:
        raise RolloutError(
            f"job {row.job_id} was not made for this version of weavegen, {__version__} ({error}): "
            "upgrade the workers, then `weavegen retry`"
        ) from None
    seed = row.seed
    if row.fork_of is not None:
        seed = conn.execute(sa.text(FIRST_SEED), {"trace": trace_id}).scalar_one()
    return TraceSpec(seed, row.agent, row.model, numbers, row.params, row.source)


@dataclass(frozen=True)
class LockedTrace:
    """What changes about a trace, read under its lock."""

    id: int
    status: str
    ticks: int
    blocks: int
    bytes: int
    written: int
    sampled_tokens: int


LOCK = sa.select(*(TRACES.c[name] for name in LockedTrace.__dataclass_fields__)).where(
    TRACES.c.id == sa.bindparam("trace")
).with_for_update()  # fmt: skip


def lock(conn: sa.Connection, trace_id: int) -> LockedTrace:
    """A trace's row, locked until the transaction ends: a trace advances in one place at a time."""
    return LockedTrace(*conn.execute(LOCK, {"trace": trace_id}).one())


def update(conn: sa.Connection, trace_id: int, **values: Any) -> None:
    conn.execute(sa.update(TRACES).where(TRACES.c.id == trace_id).values(**values))


def finish(conn: sa.Connection, trace_id: int, status: TraceStatus, detail: str, **values: Any) -> None:
    """A running trace is over, as `status`; `detail` goes into its history."""
    update(conn, trace_id, status=status, finished_at=sa.func.clock_timestamp(), **values)
    event(conn, trace_id, status, detail)


def count_sampled(conn: sa.Connection, trace_id: int, candidates: int, tokens: int) -> None:
    """Add to what the trace has cost."""
    update(
        conn,
        trace_id,
        candidates=TRACES.c.candidates + candidates,
        sampled_tokens=TRACES.c.sampled_tokens + tokens,
    )


SERVER_LOCK = START_LOCK + 1
"""Advisory lock under which traces are given servers, so that those which start together spread."""


def settle(
    conn: sa.Connection, trace_id: int, urls: Sequence[str], choose: Callable[[dict[str, int]], str]
) -> str:
    """The model server of a trace: the one that it has, if it is one of `urls`, else what `choose` says.

    `choose` is given how many running traces each server has.
    """
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(SERVER_LOCK)))
    server = conn.execute(sa.select(TRACES.c.server).where(TRACES.c.id == trace_id)).scalar_one()
    if server in urls:
        return str(server)
    server = choose(reports.traces_by_server(conn))
    update(conn, trace_id, server=server)
    return server


def event(conn: sa.Connection, trace_id: int, kind: str, detail: str | None = None) -> None:
    """Add a line to the trace's history."""
    conn.execute(sa.insert(EVENTS).values(trace_id=trace_id, kind=kind, detail=detail))


@dataclass(frozen=True)
class TickSettings:
    """What a job was when a tick began. A tick keeps to it, so that all its replays are the same."""

    revision: int
    """Of its settings."""
    paused_seconds: float
    """For how long it had been paused, in all its pauses."""


def to_start(conn: sa.Connection, max_active: int, at_most: int = 16) -> list[tuple[int, TickSettings]]:
    """Queued traces that may start now, marked as running; each free place goes to the job with the fewest.

    Jobs that are paused or draining start none, and a paused job's running traces take no places. Costs the same
    however many are queued: it looks at the first few of each job that has any.
    """
    if not conn.execute(sa.select(sa.func.pg_try_advisory_xact_lock(START_LOCK))).scalar_one():
        return []
    picked = sa.text(
        """
        with running as (
          select t.job_id, count(*) n from traces t join jobs j on j.id = t.job_id
          where t.status = 'running' and j.state <> 'paused' group by t.job_id
        ),
        free as (select least(:at_most, :max_active - coalesce((select sum(n) from running), 0)) n),
        first as (
          select t.id, row_number() over (partition by j.id order by t.id) + coalesce(r.n, 0) as turn
          from (select distinct job_id as id from traces where status = 'queued') j
          join jobs a on a.id = j.id and a.state = 'active'
          left join running r on r.job_id = j.id
          cross join lateral (
            select id from traces where job_id = j.id and status = 'queued' order by id limit :at_most
          ) t
        )
        update traces t set status = 'running', started_at = clock_timestamp() from jobs j
        where j.id = t.job_id
          and t.id in (select id from first order by turn, id limit greatest(0, (select n from free)))
        returning t.id, j.revision, j.paused_seconds
        """
    )
    rows = conn.execute(picked, {"max_active": max_active, "at_most": at_most})
    return [(row.id, TickSettings(row.revision, row.paused_seconds)) for row in sorted(rows)]


def begin_tick(
    conn: sa.Connection,
    trace_id: int,
    number: int,
    first_block: int,
    deadline: float | sa.ColumnElement[float],
    terms: TickSettings,
    *,
    subagent: str = "main",
    caller: int | None = None,
    state: Any = None,
) -> None:
    """Open the next tick; its clock starts now, less what the trace's clock is behind."""
    values = {
        "trace_id": trace_id,
        "number": number,
        "subagent": subagent,
        "caller": caller,
        "state": state,
        "deadline": deadline,
        "revision": terms.revision,
        "paused_seconds": terms.paused_seconds,
        "first_block": first_block,
        "repeats": repeats(conn, trace_id, subagent),
    }
    lag = sa.select(TRACES.c.lag).where(TRACES.c.id == trace_id).scalar_subquery()
    conn.execute(sa.insert(TICKS).values(values | {"clock": epoch() - lag}))


MOST_REPEATS = 16
"""Ticks that are looked back upon."""
DEEDS = sa.text(
    """
    with latest as (
      select number, first_block from ticks
      where trace_id = :trace and subagent = :subagent and number > 0 order by number desc limit :most
    )
    select string_agg(type || body, ' ' order by index) from blocks join latest on tick = number
    where trace_id = :trace and index >= (select min(first_block) from latest) and type in ('action', 'outcome')
    group by tick order by tick desc
    """
)


def repeats(conn: sa.Connection, trace_id: int, subagent: str) -> int:
    """How many of a subagent's last ticks in a row had the same actions and the same outcomes."""
    deeds = conn.execute(DEEDS, {"trace": trace_id, "subagent": subagent, "most": MOST_REPEATS}).scalars().all()
    return len(list(itertools.takewhile(lambda deed: deed == deeds[0], deeds)))


def epoch() -> sa.ColumnElement[float]:
    """The time now, in seconds since the epoch, to the millisecond."""
    return sa.func.round(sa.func.extract("epoch", sa.func.clock_timestamp()), 3)


@dataclass(frozen=True)
class OpenTick:
    """Where a running trace stands."""

    start: Start
    """Of its open tick."""
    run: int
    """Which run of the tick this is."""
    settings: TickSettings
    """Those that the tick was begun with."""
    newest_settings: TickSettings
    """Those that the next tick will begin with."""
    paused: bool
    """Whether its job is."""
    caller: int | None
    """Number of the tick whose action waits for this tick's subagent."""
    newest: int
    """Number of the trace's last tick; this one's, but where subagents had ticks since it began."""
    host: str | None
    """Where its environment lives; None before that was started."""

    @property
    def paused_seconds(self) -> float:
        """For how long the job was paused since the tick began."""
        return self.newest_settings.paused_seconds - self.settings.paused_seconds


# Not part of LOCK: a statement that waited for the lock would still see these as they were before the wait.
OPEN_TICK = sa.text(
    """
    select k.number, k.run, k.first_block, k.clock, k.subagent, k.caller, k.deadline, k.repeats, k.revision,
      k.state, k.paused_seconds, k.inherited, t.seed, t.lag, j.revision as newest_revision,
      j.paused_seconds as newest_paused_seconds,
      j.state = 'paused' as paused,
      (select max(number) from ticks where trace_id = k.trace_id) as newest,
      (select type from blocks where trace_id = k.trace_id and index = k.first_block - 1) as last_type,
      (select host from environments where trace_id = k.trace_id and closed_at is null) as host
    from ticks k join traces t on t.id = k.trace_id join jobs j on j.id = t.job_id
    where k.trace_id = :trace and k.finished_at is null order by k.number desc limit 1
    """
)


def open_tick(conn: sa.Connection, trace: LockedTrace) -> OpenTick:
    """The open tick of a locked trace; where subagents wait for subagents, the innermost one's."""
    row = conn.execute(OPEN_TICK, {"trace": trace.id}).one()
    start = Start(
        trace_seed=row.seed,
        tick=row.number,
        clock=row.clock,
        deadline=row.deadline,
        blocks=row.first_block,
        last_type=BlockType(row.last_type) if row.last_type else None,
        repeats=row.repeats,
        subagent=row.subagent,
        state=row.state,
        lag=row.lag,
        inherited=inherited(row.inherited),
    )
    return OpenTick(
        start,
        row.run,
        TickSettings(row.revision, row.paused_seconds),
        TickSettings(row.newest_revision, row.newest_paused_seconds),
        row.paused,
        row.caller,
        row.newest,
        row.host,
    )


def inherited(value: Any) -> tuple[InheritedSettings, ...]:
    """The column `ticks.inherited`."""
    return () if value is None else msgspec.convert(value, tuple[InheritedSettings, ...])


def end_tick(conn: sa.Connection, trace_id: int, number: int) -> None:
    conn.execute(
        sa.update(TICKS)
        .where(TICKS.c.trace_id == trace_id, TICKS.c.number == number)
        .values(finished_at=sa.func.clock_timestamp())
    )


def restart_tick(conn: sa.Connection, trace_id: int, number: int) -> None:
    """Begin another run of a tick."""
    conn.execute(
        sa.update(TICKS).where(TICKS.c.trace_id == trace_id, TICKS.c.number == number).values(run=TICKS.c.run + 1)
    )
    update(conn, trace_id, restarts=TRACES.c.restarts + 1)


def reward_tick(conn: sa.Connection, trace_id: int, number: int, reward: float) -> None:
    conn.execute(
        sa.update(TICKS).where(TICKS.c.trace_id == trace_id, TICKS.c.number == number).values(reward=reward)
    )


def stuck(conn: sa.Connection) -> Sequence[int]:
    """Running traces that wait for nothing: an advance failed and must be tried again, or what they waited for is
    done. Paused jobs wait."""
    open_step = sa.exists().where(
        m.Step.trace_id == TRACES.c.id,
        m.Step.status.in_(("ready", "running")),
        m.Step.kind != "work",  # a subagent's ticks
    )
    waiting = (
        sa.select(TRACES.c.id)
        .join(JOBS, JOBS.c.id == TRACES.c.job_id)
        .where(TRACES.c.status == TraceStatus.RUNNING, JOBS.c.state != JobState.PAUSED, ~open_step)
    )
    return conn.execute(waiting).scalars().all()


ABANDONED = sa.text(
    """
    select t.id from traces t join steps s on s.id = t.called_by
    where t.status in ('queued', 'running') and s.status = 'void'
    """
)


def cancel_abandoned(conn: sa.Connection) -> None:
    """Cancel traces that others had asked for which no longer wait: they failed, were cancelled, started over."""
    ids = conn.execute(ABANDONED).scalars().all()
    if ids:
        _cancel(conn, TRACES.c.id.in_(ids))


def cancel(conn: sa.Connection, job_id: int) -> int:
    """Cancel a job's queued and running traces; what they wrote stays. Returns how many."""
    return _cancel(conn, TRACES.c.job_id == job_id)


def _cancel(conn: sa.Connection, which: sa.ColumnElement[bool]) -> int:
    cancelled = conn.execute(
        sa.update(TRACES)
        .where(which, TRACES.c.status.in_(("queued", "running")))
        .values(status=TraceStatus.CANCELLED, finished_at=sa.func.clock_timestamp())
        .returning(TRACES.c.id)
    )
    ids = cancelled.scalars().all()
    steps = m.table(m.Step)
    conn.execute(
        sa.update(steps)
        .where(steps.c.trace_id.in_(ids), steps.c.status.in_(("ready", "running")))
        .values(status=m.StepStatus.VOID)
    )
    return len(ids)
