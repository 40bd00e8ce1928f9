"""The journal's rows: claimed with a lease, finished by compare-and-set, found again when a worker died."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.errors import EnvironmentFailure, ModelError, RolloutError, StepLost
from weavegen.kernel import replay
from weavegen.kernel.steps import (
    STEP_KINDS,
    WAITS,
    Delegated,
    Execute,
    Executed,
    HumanAnswer,
    Step,
    SubagentDone,
)
from weavegen.store import models as m
from weavegen.store.models import JobState, StepStatus, TraceStatus

STEPS, TRACES, TICKS, JOBS, ENVIRONMENTS = map(m.table, (m.Step, m.Trace, m.Tick, m.Job, m.Environment))
FAILURES: dict[str, type[RolloutError]] = {"model": ModelError, "environment": EnvironmentFailure}
COPIED = tuple(kind for kind, step in STEP_KINDS.items() if step.copied)
LONGEST_DELAY = 45.0
"""Seconds before a step that was given back is sent again, at most."""
MAX_CLAIMS = 30
"""A step that was taken this often without an end fails: something about it kills or blocks its workers."""


@dataclass(frozen=True)
class Message:
    """A step to send to Celery once the transaction that made it ready is committed."""

    step_id: int
    kind: str
    queue: str
    label: str


@dataclass(frozen=True)
class Claimed:
    """A step that this worker holds for now."""

    id: int
    trace_id: int
    tick: int
    run: int
    ordinal: int
    claims: int
    step: Step
    server: str | None = None
    """Base URL of the model server that its trace sticks to; None: it has none yet."""
    revision: int = 0
    """Of the job's settings, that the step's tick was begun with."""
    restarts: int = 0
    """Of the trace's ticks, so far."""


def insert_ready(
    conn: sa.Connection,
    trace_id: int,
    tick: int,
    run: int,
    steps: Iterable[tuple[int, Step]],
    host: str | None,
    resend: float,
) -> list[Message]:
    """Write the next steps into the journal. They may be sent once this is committed.

    A step of a kind that waits runs from now on, and no worker takes it: `worked`, `returned` and `answer` end it.
    """
    rows = []
    for ordinal, step in steps:
        queue = f"{step.queue}.{host}" if isinstance(step, Execute) and host else step.queue
        rows.append(
            {
                "trace_id": trace_id,
                "tick": tick,
                "run": run,
                "ordinal": ordinal,
                "kind": step.kind,
                "label": f"trace {trace_id} tick {tick} {step.summary}".rstrip(),
                "request": step,
                "status": StepStatus.RUNNING if step.queue is None else StepStatus.READY,
                "queue": queue or "control",
            }
        )
    statement = sa.insert(STEPS).values(send_after=_later(resend))
    returned = statement.returning(
        STEPS.c.id, STEPS.c.kind, STEPS.c.queue, STEPS.c.label, sort_by_parameter_order=True
    )
    return [Message(*row) for row in conn.execute(returned, rows)]


def worked(conn: sa.Connection, trace_id: int, tick: int, result: SubagentDone) -> None:
    """End the step of a tick that waited for a subagent."""
    _end(conn, (STEPS.c.trace_id == trace_id) & (STEPS.c.tick == tick) & (STEPS.c.kind == "work"), result)


RETURNED = sa.text(
    """
    select s.id, t.id as trace, t.status, t.returned, t.ended_because, t.failure
    from steps s join traces t on t.called_by = s.id
    where s.kind = 'delegate' and s.status = 'running' and t.status in ('ended', 'failed', 'cancelled')
    """
)


def returned(conn: sa.Connection) -> None:
    """End the steps that waited for traces which are over by now, with what these returned."""
    for row in conn.execute(RETURNED).all():
        error = None
        if row.status == TraceStatus.FAILED:
            error = row.failure
        elif row.status == TraceStatus.CANCELLED:
            error = "it was cancelled"
        elif row.ended_because != "returned":
            error = f"it had spent its budget of {row.ended_because} before it returned"
        _end(conn, STEPS.c.id == row.id, Delegated(trace=row.trace, returned=row.returned, error=error))


def answer(conn: sa.Connection, trace_id: int, text: str) -> bool:
    """End the step of a trace that waits for a person, with what they say. False: it waits for nobody."""
    return _end(conn, (STEPS.c.trace_id == trace_id) & (STEPS.c.kind == "await"), HumanAnswer(text=text))


def _end(
    conn: sa.Connection, which: sa.ColumnElement[bool], result: SubagentDone | Delegated | HumanAnswer
) -> bool:
    """End a step that no worker takes. False: there is none that still waits."""
    ended = conn.execute(
        sa.update(STEPS)
        .where(which, STEPS.c.status == StepStatus.RUNNING)
        .values(status=StepStatus.DONE, result=result, finished_at=sa.func.clock_timestamp())
    )
    return ended.rowcount > 0


def _later(seconds: Any) -> Any:
    return sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


CLAIM = (
    sa.update(STEPS)
    .where(STEPS.c.id == sa.bindparam("step"), STEPS.c.status == StepStatus.READY)
    .where(TRACES.c.id == STEPS.c.trace_id, TRACES.c.status == TraceStatus.RUNNING)
    .where(JOBS.c.id == TRACES.c.job_id, JOBS.c.state != JobState.PAUSED)
    .where(TICKS.c.trace_id == STEPS.c.trace_id, TICKS.c.number == STEPS.c.tick)
    .values(
        status=StepStatus.RUNNING,
        claims=STEPS.c.claims + 1,
        worker=sa.bindparam("by"),
        claimed_at=sa.func.clock_timestamp(),
        lease_until=_later(sa.bindparam("lease", type_=sa.Double)),
    )
    .returning(
        *(STEPS.c[name] for name in ("id", "trace_id", "tick", "run", "ordinal", "claims", "kind", "request")),
        TRACES.c.server,
        TICKS.c.revision,
        TRACES.c.restarts,
    )
)


def claim(conn: sa.Connection, step_id: int, worker: str, lease: float) -> Claimed | None:
    """Take a step, if it is still there to be taken, its trace still runs and its job is not paused.

    Raises JournalMismatch, and has taken it, where this version can't read it.
    """
    row = conn.execute(CLAIM, {"step": step_id, "by": worker, "lease": lease}).one_or_none()
    if row is None:
        return None
    step = replay.decode_step(row.kind, row.request)
    numbers = row.id, row.trace_id, row.tick, row.run, row.ordinal, row.claims
    return Claimed(*numbers, step, row.server, row.revision, row.restarts)


def renew(conn: sa.Connection, held: Sequence[tuple[int, int]], lease: float) -> None:
    """Keep steps, given as (id, claims), for another lease."""
    ids = sa.tuple_(STEPS.c.id, STEPS.c.claims).in_(held)
    conn.execute(
        sa.update(STEPS).where(ids, STEPS.c.status == StepStatus.RUNNING).values(lease_until=_later(lease))
    )


FINISHED = ("result", "failure_kind", "failure", "model_seconds", "environment_seconds")
FINISH = (
    sa.update(STEPS)
    .where(
        STEPS.c.id == sa.bindparam("step"),
        STEPS.c.claims == sa.bindparam("fence"),
        STEPS.c.status == StepStatus.RUNNING,
    )
    .values(
        status=sa.bindparam("new_status"),
        lease_until=None,
        finished_at=sa.func.clock_timestamp(),
        working_seconds=sa.func.extract("epoch", sa.func.clock_timestamp() - STEPS.c.claimed_at),
        **{name: sa.bindparam(f"new_{name}") for name in FINISHED},
    )
)


def finish(conn: sa.Connection, held: Claimed, status: StepStatus, **values: Any) -> None:
    """Store what came of a step. Raises StepLost where this worker no longer holds it."""
    parameters = {f"new_{name}": values.get(name) for name in FINISHED}
    done = conn.execute(FINISH, {"step": held.id, "fence": held.claims, "new_status": status} | parameters)
    if done.rowcount != 1:
        raise StepLost(f"step {held.id}: another worker has it, or its trace was cancelled")


def release(conn: sa.Connection, held: Claimed, reason: str, delay: float, *, counts: bool = True) -> None:
    """Give a step back after a transient error; the sweeper sends it again in `delay` seconds.

    One that could not even be tried does not count as a claim.
    """
    conn.execute(
        sa.update(STEPS)
        .where(STEPS.c.id == held.id, STEPS.c.claims == held.claims, STEPS.c.status == StepStatus.RUNNING)
        .values(
            status=StepStatus.READY,
            lease_until=None,
            failure=reason,
            send_after=_later(delay),
            claims=STEPS.c.claims - int(not counts),
        )
    )


def overdue(conn: sa.Connection, resend: float, limit: int = 1000) -> list[Message]:
    """Steps to send again: those whose lease ran out, and ready ones that nobody took for `resend` seconds.

    So are those that would have to wait for longer than anything does: the database's clock was set back. Those of
    paused jobs are left as they are until `resume`.
    """
    now, never = sa.func.clock_timestamp(), _later(resend + LONGEST_DELAY)
    expired = (STEPS.c.status == StepStatus.RUNNING) & ~STEPS.c.lease_until.between(now, never)
    unsent = (STEPS.c.status == StepStatus.READY) & ~STEPS.c.send_after.between(now, never)
    due = (
        sa.select(STEPS.c.id)
        .join(TRACES, TRACES.c.id == STEPS.c.trace_id)
        .join(JOBS, JOBS.c.id == TRACES.c.job_id)
        .where(STEPS.c.status.in_(OPEN), expired | unsent, JOBS.c.state != JobState.PAUSED)
        .limit(limit)
    )
    rows = conn.execute(
        sa.update(STEPS)
        .where(STEPS.c.id.in_(due.with_for_update(of=STEPS, skip_locked=True)))
        .values(status=StepStatus.READY, lease_until=None, send_after=_later(resend))
        .returning(STEPS.c.id, STEPS.c.kind, STEPS.c.queue, STEPS.c.label, STEPS.c.claims)
    )
    return [Message(row.id, row.kind, row.queue, again(row.label, row.claims)) for row in rows]


def again(label: str, claims: int) -> str:
    """What Flower shows of a step that workers have taken `claims` times before."""
    return f"{label} attempt {claims + 1}" if claims else label


def broker_is_new(conn: sa.Connection) -> None:
    """Have the sweeper send every ready step at once: the broker that had their messages is gone."""
    conn.execute(
        sa.update(STEPS).where(STEPS.c.status == StepStatus.READY).values(send_after=sa.func.clock_timestamp())
    )


def workers(conn: sa.Connection) -> Sequence[str]:
    """Who holds steps: `host:pid` of each worker process."""
    held = sa.select(STEPS.c.worker).distinct().where(STEPS.c.status == StepStatus.RUNNING)
    return conn.execute(held.where(STEPS.c.worker.is_not(None))).scalars().all()


def give_back(conn: sa.Connection, workers: Sequence[str] | None = None) -> int:
    """These worker processes are gone, or all are: the sweeper sends at once what they held. Returns how many."""
    return _give_back(
        conn, STEPS.c.kind.not_in(WAITS), sa.true() if workers is None else STEPS.c.worker.in_(workers)
    )


def give_back_held(conn: sa.Connection, held: Sequence[tuple[int, int]]) -> None:
    """The same for steps given as (id, claims)."""
    _give_back(conn, sa.tuple_(STEPS.c.id, STEPS.c.claims).in_(held))


def _give_back(conn: sa.Connection, *those: sa.ColumnElement[bool]) -> int:
    given = conn.execute(
        sa.update(STEPS)
        .where(STEPS.c.status == StepStatus.RUNNING, *those)
        .values(status=StepStatus.READY, lease_until=None, send_after=sa.func.clock_timestamp())
    )
    return given.rowcount


def leave_hosts(conn: sa.Connection, trace_ids: Sequence[int] | None = None) -> None:
    """The environments of these traces, or all, were ended on purpose: any host may rebuild them.

    Their rows go, for those that stay count as deaths.
    """
    those = [ENVIRONMENTS.c.closed_at.is_(None)]
    bound = [STEPS.c.queue.like("execute.%"), STEPS.c.status.in_(OPEN)]
    if trace_ids is not None:
        those.append(ENVIRONMENTS.c.trace_id.in_(trace_ids))
        bound.append(STEPS.c.trace_id.in_(trace_ids))
    conn.execute(sa.delete(ENVIRONMENTS).where(*those))
    conn.execute(sa.update(STEPS).where(*bound).values(queue="execute"))


def trace_of(conn: sa.Connection, step_id: int) -> int:
    """The trace of a step that can't be read."""
    return int(conn.execute(sa.select(STEPS.c.trace_id).where(STEPS.c.id == step_id)).scalar_one())


OPEN = (StepStatus.READY, StepStatus.RUNNING)


LOAD = (
    sa.select(
        *(STEPS.c[name] for name in ("id", "kind", "status", "request", "result", "failure_kind", "failure")),
        sa.func.extract("epoch", STEPS.c.finished_at).label("at"),
    )
    .where(
        STEPS.c.trace_id == sa.bindparam("trace"),
        STEPS.c.tick == sa.bindparam("number"),
        STEPS.c.run == sa.bindparam("turn"),
    )
    .order_by(STEPS.c.ordinal)
)


def load(conn: sa.Connection, trace_id: int, tick: int, run: int) -> tuple[list[replay.Entry], dict[int, int]]:
    """A tick's journal, in order, and the step ids by ordinal."""
    rows = conn.execute(LOAD, {"trace": trace_id, "number": tick, "turn": run}).all()
    entries = []
    for row in rows:
        step = replay.decode_step(row.kind, row.request)
        if row.status == StepStatus.DONE:
            result = replay.decode_result(row.kind, row.result)
            entries.append(replay.Entry(step, done=True, result=result, at=float(row.at)))
        elif row.status == StepStatus.FAILED:
            failure = FAILURES.get(row.failure_kind, RolloutError)(row.failure)
            entries.append(replay.Entry(step, done=True, failure=failure, at=float(row.at)))
        else:
            entries.append(replay.Entry(step))
    return entries, {ordinal: row.id for ordinal, row in enumerate(rows)}


@dataclass(frozen=True)
class ExecutedStep:
    """An Execute step that was done, for a new environment to do again."""

    id: int
    step: Execute
    result: Executed
    claimed_at: Any


def executed(conn: sa.Connection, trace_id: int) -> list[ExecutedStep]:
    """All that a trace's environment has done, in order."""
    rows = conn.execute(
        sa.select(STEPS.c.id, STEPS.c.request, STEPS.c.result, STEPS.c.claimed_at)
        .where(STEPS.c.trace_id == trace_id, STEPS.c.kind == "execute", STEPS.c.status == StepStatus.DONE)
        .order_by(STEPS.c.id)  # a subagent's ticks lie inside its caller's
    )
    return [
        ExecutedStep(
            row.id,
            replay.decode_step("execute", row.request),  # type: ignore[arg-type]
            replay.decode_result("execute", row.result),
            row.claimed_at,
        )
        for row in rows
    ]


def forget_results(conn: sa.Connection, trace_id: int, tick: int) -> None:
    """Empty the results of a finished tick: replay is over, and the typed tables hold what they said."""
    conn.execute(
        sa.update(STEPS)
        .where(STEPS.c.trace_id == trace_id, STEPS.c.tick == tick, STEPS.c.kind.in_(COPIED))
        .values(result=None)
    )


def void(conn: sa.Connection, trace_id: int, tick: int | None = None) -> None:
    """Nobody is to run the open steps of this trace, or of this one of its ticks, any more."""
    those = [STEPS.c.trace_id == trace_id, STEPS.c.status.in_(OPEN)]
    if tick is not None:
        those.append(STEPS.c.tick == tick)
    conn.execute(sa.update(STEPS).where(*those).values(status=StepStatus.VOID))
