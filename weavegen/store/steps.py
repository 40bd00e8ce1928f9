"""The journal: steps that workers claim with a lease, and their results."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import EnvironmentFailure, ModelError, RolloutError
from weavegen.kernel import replay
from weavegen.kernel.steps import STEP_KINDS, WAITS, Delegated, Execute, Executed, HumanAnswer, Step
from weavegen.store.leases import MAX_DELAY_SECONDS, LeaseTable
from weavegen.store.states import StepStatus
from weavegen.store.workers import SILENT_SECONDS

COPIED = [kind for kind, step in STEP_KINDS.items() if step.copied]
"""Kinds whose results the typed tables hold too."""
FAILURES: dict[str, type[RolloutError]] = {"model": ModelError, "environment": EnvironmentFailure}
RESULTS = ("result", "failure_kind", "failure", "model_seconds", "environment_seconds")
"""Columns that a worker sets when it finishes a step."""
LEASES = LeaseTable("steps", "step", StepStatus.READY)


@dataclass(frozen=True)
class Message:
    """A step to send to Celery, once the transaction that made it ready is committed."""

    step_id: int
    kind: str
    queue: str
    label: str


def insert_ready(
    conn: Connection,
    trace_id: int,
    tick: int,
    run: int,
    steps: Iterable[tuple[int, Step]],
    host: str | None,
    resend: float,
) -> list[Message]:
    """Write the next steps, with their ordinals, into the journal. They may be sent once this is committed.

    No worker claims a step of the kinds in WAITS: it is running at once, and the engine, `end_returned_delegates` or
    `answer` ends it.
    """
    rows = []
    for ordinal, step in steps:
        queue = f"{step.queue}.{host}" if isinstance(step, Execute) and host else step.queue
        label = f"trace {trace_id} tick {tick} {step.summary}".rstrip()
        status = StepStatus.RUNNING if step.queue is None else StepStatus.READY
        row = {"ordinal": ordinal, "kind": step.kind, "label": label, "request": step, "status": status}
        rows.append(row | {"queue": queue or "control"})
    place = {"trace": trace_id, "tick": tick, "run": run}
    return [Message(*row) for row in sorted(sql.run(conn, "store/insert_steps", **place, steps=rows, resend=resend))]


@dataclass(frozen=True)
class Claimed:
    """A step that this worker holds."""

    id: int
    trace_id: int
    tick: int
    run: int
    ordinal: int
    claims: int
    step: Step
    server: str | None = None
    """Base URL of the trace's model server; None: it has none yet."""
    revision: int = 0
    """The revision of the job's settings that the step's tick uses."""
    restarts: int = 0
    """How many ticks of the trace were started over so far."""


def claim(conn: Connection, step_id: int, worker: str, lease: float) -> Claimed | None:
    """Claim a step. None: it is not ready, its trace is not running, or its job is paused.

    Raises JournalMismatch where this version can't read the step. The step is claimed nevertheless.
    """
    row = sql.run(conn, "store/claim_step", step=step_id, worker=worker, lease=lease).one_or_none()
    if row is None:
        return None
    step = replay.decode_step(row.kind, row.request)
    numbers = row.id, row.trace_id, row.tick, row.run, row.ordinal, row.claims
    return Claimed(*numbers, step, row.server, row.revision, row.restarts)


def finish(conn: Connection, held: Claimed, status: StepStatus, **values: Any) -> None:
    """Store the result of a step. Raises StepLost where this worker no longer holds it."""
    own = {name: values.get(name) for name in RESULTS}
    LEASES.finish(conn, held, "store/finish_step", status=status, **own)


def overdue(conn: Connection, resend: float, limit: int = 1000) -> list[Message]:
    """Steps to send again: those whose lease expired, and those that no worker claimed for `resend` seconds.

    Steps of paused jobs wait until `resume`, those for one host until its worker reports again.
    """
    values = {"never": resend + MAX_DELAY_SECONDS, "silent": SILENT_SECONDS, "limit": limit}
    return [Message(*row) for row in sql.run(conn, "store/overdue_steps", resend=resend, **values)]


def give_back(conn: Connection, workers: Sequence[str] | None = None) -> int:
    """Free the steps of worker processes that are gone; None: of all. Returns how many."""
    gone = None if workers is None else list(workers)
    return sql.run(conn, "store/give_back_steps", workers=gone, waits=list(WAITS)).rowcount


def unbind_hosts(conn: Connection, trace_ids: Sequence[int] | None = None) -> None:
    """Let any host rebuild the environments of these traces, or of all, which were stopped on purpose.

    Their rows are deleted, because a row that stays counts as a death.
    """
    traces = None if trace_ids is None else list(trace_ids)
    sql.run(conn, "store/forget_environments", traces=traces)
    sql.run(conn, "store/unbind_hosts", traces=traces)


def end_returned_delegates(conn: Connection) -> None:
    """End the steps that wait for traces that have ended, with what these traces returned."""
    for row in sql.run(conn, "store/returned_delegates").all():
        result = Delegated(trace=row.trace, returned=row.returned, error=row.error)
        sql.run(conn, "store/end_step", step=row.id, result=result)


def answer(conn: Connection, trace_id: int, text: str) -> bool:
    """End the step in which a trace waits for a person, with their answer. False: there is no such step."""
    result = HumanAnswer(text=text)
    return sql.run(conn, "store/end_steps_of_kind", trace=trace_id, kind="await", tick=None, result=result).rowcount > 0


def load(conn: Connection, trace_id: int, tick: int, run: int) -> tuple[list[replay.Entry], dict[int, int]]:
    """A tick's journal, in order, and its step ids by ordinal."""
    rows = tick_rows(conn, trace_id, tick, run)
    return [entry(row) for row in rows], {ordinal: row.id for ordinal, row in enumerate(rows)}


def tick_rows(conn: Connection, trace_id: int, tick: int, run: int) -> Sequence[Any]:
    """Rows of tick_steps.sql."""
    return sql.run(conn, "store/tick_steps", trace=trace_id, tick=tick, run=run).all()


def entry(row: Any, emptied: Any = None) -> replay.Entry:
    """A row of the journal as replay takes it. `emptied`: its result, where the journal no longer has it."""
    step = replay.decode_step(row.kind, row.request)
    if row.status == StepStatus.DONE:
        result = replay.decode_result(row.kind, row.result) if emptied is None else emptied
        return replay.Entry(step, done=True, result=result, at=float(row.at))
    if row.status == StepStatus.FAILED:
        failure = FAILURES.get(row.failure_kind, RolloutError)(row.failure)
        return replay.Entry(step, done=True, failure=failure, at=float(row.at))
    return replay.Entry(step)


def executed(conn: Connection, trace_id: int) -> list[tuple[int, Execute, Executed, Any]]:
    """(id, step, result, when it was claimed) of a trace's finished Execute steps, in the order in which they ran."""
    found = []
    for row in sql.run(conn, "store/executed_steps", trace=trace_id):
        step = replay.decode_step("execute", row.request)
        assert isinstance(step, Execute)
        found.append((row.id, step, replay.decode_result("execute", row.result), row.claimed_at))
    return found


def listed_tools(conn: Connection, trace_id: int) -> Any:
    """The tools of the MCP servers as the trace's first tick listed them; None: it did not."""
    return sql.run(conn, "store/listed_tools", trace=trace_id).scalar_one_or_none()


def last_evaluated(conn: Connection, trace_id: int, step_id: int) -> Executed | None:
    """The result of the newest evaluate step of the trace's main subagent before a step; None if there is none."""
    row = sql.run(conn, "store/last_evaluated", trace=trace_id, step=step_id).one_or_none()
    return None if row is None else replay.decode_result("execute", row.result)
