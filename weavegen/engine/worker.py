"""What surrounds the work of every step: claim, keep the lease, store the result, advance the trace, send what follows.

No transaction is open while the work is done. `Worker` knows Celery only as `dispatch`, which the tasks pass in.
"""

import contextlib
import errno
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import psycopg

from weavegen import sql
from weavegen.config import Config
from weavegen.engine.advance import UNSTORABLE, Engine, Progress, Save
from weavegen.engine.leases import Leases
from weavegen.engine.model_calls import Pools
from weavegen.engine.prompt_assembly import Context
from weavegen.errors import JournalMismatch, RolloutError, StepLost, TransientError, Unserved, UsageError
from weavegen.kernel.steps import STEP_KINDS, Execute, Score, Step
from weavegen.store import jobs, requests, steps, traces, workers
from weavegen.store.leases import MAX_CLAIMS, MAX_DELAY_SECONDS, Held, LeaseTable
from weavegen.store.session import database, single
from weavegen.store.states import StepStatus
from weavegen.store.steps import Claimed, Message

log = logging.getLogger(__name__)
T = TypeVar("T", bound=Held)

OF_HOST = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
"""Numbers of errors of a host that lacks disk, memory, processes or open files. They are no fault of a step."""
LIMITS = ("54", "53200", "53400", "57014")
"""PostgreSQL's errors, by class or code, that another attempt meets again: limits, memory, room for sorting, time."""
SWEEP_LOCK = 0x77656170
"""Advisory lock key: one process at a time sweeps."""
UNSTORED_SECONDS = 10.0  # what a model wrote was lost with the attempt, so the next one waits longer than others


@dataclass
class Done:
    """The result of a step's work."""

    result: Any
    save: Save | None = None
    model_seconds: float | None = None
    environment_seconds: float | None = None
    stored: Callable[[], None] | None = None
    """Called once all this is committed."""


@dataclass(frozen=True)
class Outcome:
    """What became of a task."""

    status: Literal["done", "failed", "again", "ignored"]
    detail: str
    """One line, which Flower shows."""


Dispatch = Callable[[str, int, str, str], None]
"""Sends a Celery task: its name, the id, the queue, the label. A message that is lost is sent again by the sweeper."""


class Worker:
    """Does steps of traces. One for each process; its threads share it."""

    def __init__(self, config: Config, dispatch: Dispatch, work: "Mapping[type[Step], Work]") -> None:
        """`work`: the function that does the work of each kind of step."""
        self.config, self.dispatch, self.work = config, dispatch, work
        self.engine = Engine(database(), max_active=config.max_active, resend=2 * config.lease)
        self.leases = Leases("steps", steps.LEASES, config.lease)
        self.texts, self.judged_texts = Context(), Context()
        """Caches of what the writing model reads, and of what a separate evaluator reads, which has other tokens."""
        self.pools = Pools(config)
        self.closing: dict[int, float] = {}  # by trace: when this process last had its environment closed

    def run(self, step_id: int) -> Outcome:
        """Do one step, unless another worker has it, this process does it already, or it is over."""
        if self.leases.holds(step_id):  # on an overloaded host the lease expires; a second try would cost more
            return Outcome("ignored", "this process does it already")
        try:
            with single().connect() as conn:
                claim = steps.claim(conn, step_id, claimant(), self.config.lease)
        except JournalMismatch as error:
            with single().connect() as conn:
                trace_id = int(sql.run(conn, "store/trace_of_step", step=step_id).scalar_one())
            self.advance(trace_id)  # restarts the tick
            return Outcome("ignored", str(error))
        if claim is None:
            return Outcome("ignored", "nothing to do")
        return held(self.leases, claim, self._run)

    def _run(self, claim: Claimed) -> Outcome:
        try:
            if claim.claims > MAX_CLAIMS:
                raise RolloutError(f"{claim.claims} workers claimed this step and none of them finished it")
            done = self.work[type(claim.step)](self, claim, claim.step)
        except TransientError as error:
            return self._give_back(claim, error)
        except RolloutError as error:
            return self._fail(claim, error.kind, str(error)[:2000])
        except UsageError as error:  # of this installation: the server lacks the model, there is no sandbox
            return self._fail(claim, failure_kind(claim), str(error))
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in OF_HOST:
                return self._give_back(claim, Unserved(f"on {self.config.host}: {error}"))
            log.exception("step %d: unexpected error", claim.id)
            return self._fail(claim, "bug", f"{type(error).__name__}: {error}")
        values = {"model_seconds": done.model_seconds, "environment_seconds": done.environment_seconds}
        try:
            outcome = self._store(claim, StepStatus.DONE, done.save, result=done.result, **values)
        except UNSTORABLE as error:
            log.exception("step %d: its result can't be stored", claim.id)
            [reason, *_] = str(error).splitlines()
            return self._fail(claim, "bug", f"its result can't be stored: {reason}")
        if done.stored is not None and outcome.status == "done":
            done.stored()
        return outcome

    def _store(self, claim: Claimed, status: StepStatus, save: Save | None = None, **values: Any) -> Outcome:
        """Store the end of a step and send what follows."""
        try:
            progress = self.engine.finish(claim, status, save, **values)
        except StepLost as error:
            return Outcome("ignored", str(error))
        self.follow(progress, claim.trace_id)
        return Outcome("done", str(status))

    def _fail(self, claim: Claimed, kind: str, reason: str) -> Outcome:
        """Store that a step has failed."""
        scores = kind == "model" and isinstance(claim.step, Score)
        save = partial(jobs.require_scores, trace_id=claim.trace_id) if scores else None
        try:
            outcome = self._store(claim, StepStatus.FAILED, save, failure_kind=kind, failure=reason)
        except Unserved:
            with database().begin() as conn:
                jobs.pause_unscored(conn, claim.trace_id, reason)
            return give_back(steps.LEASES, claim, Unserved(reason))
        return outcome if outcome.status == "ignored" else Outcome("failed", f"{kind}: {reason}")

    def _give_back(self, claim: Claimed, error: TransientError) -> Outcome:
        """Let the sweeper send the step again; after too many attempts it fails."""
        if claim.claims >= MAX_CLAIMS and not isinstance(error, Unserved):
            return self._fail(claim, failure_kind(claim), f"tried {claim.claims} times: {error}")
        return give_back(steps.LEASES, claim, error)

    def advance(self, trace_id: int) -> None:
        """Advance a trace from the end of its journal."""
        self.follow(self.engine.advance(trace_id), trace_id)

    def follow(self, progress: Progress, trace_id: int) -> None:
        """After the commit: send the next steps. Where the trace is over, start others and close its environment."""
        self.send(progress.messages)
        if progress.over:
            self.send(self.engine.start_queued())
            self.close_environments(trace_id)

    def send(self, messages: Iterable[Message]) -> None:
        """Hand steps to Celery."""
        for message in messages:
            self.dispatch(f"weavegen.{message.kind}", message.step_id, message.queue, message.label)

    def close_environments(self, trace_id: int | None = None) -> int:
        """Have the environments of ended traces closed on their hosts. Returns how many."""
        with single().connect() as conn:
            silent = workers.SILENT_SECONDS
            hosts = dict(sql.run(conn, "store/environments_to_close", trace=trace_id, silent=silent).all())
        now = time.monotonic()
        self.closing = {id: at for id, at in self.closing.copy().items() if now - at < self.engine.resend}
        due = hosts.keys() - self.closing.keys()  # a host that closes slowly is not told again each second
        for id in sorted(due):
            self.dispatch("weavegen.close", id, f"execute.{hosts[id]}", f"trace {id}")
            self.closing[id] = now
        return len(due)

    def sweep(self) -> str:
        """Send lost steps again, start queued traces, close the environments of ended ones. Runs every second."""
        with database().begin() as conn:
            # A sweep that takes longer than a second would otherwise fill the workers' threads with others.
            if not sql.run(conn, "store/try_advisory_lock", key=SWEEP_LOCK).scalar_one():
                return "another sweeps"
            overdue = steps.overdue(conn, 2 * self.config.lease)
            steps.end_returned_delegates(conn)
            traces.cancel_abandoned(conn)
            requests.follow_traces(conn)
            stuck: list[int] = list(sql.run(conn, "store/stuck_traces").scalars())
            # No worker takes a step of a kind that only a newer version knows: advancing restarts its tick.
            unknown = [step.step_id for step in overdue if step.kind not in STEP_KINDS]
            stuck += [sql.run(conn, "store/trace_of_step", step=step).scalar_one() for step in unknown]
        self.send(step for step in overdue if step.kind in STEP_KINDS)
        for trace_id in stuck:
            self.dispatch("weavegen.advance", trace_id, "control", f"trace {trace_id}")
        started = self.engine.start_queued()
        self.send(started)
        closing = self.close_environments()
        return f"{len(overdue)} sent again, {len(stuck)} advanced, {len(started)} started, {closing} closed"


Work = Callable[[Worker, Claimed, Any], Done]
"""The work of a step. Raises TransientError where the step is to be tried again, RolloutError where it failed."""


def claimant() -> str:
    """The name of this process in the journal."""
    return f"{socket.gethostname()}:{os.getpid()}"


def give_back(table: LeaseTable, row: Held, error: TransientError) -> Outcome:
    """Let a row be sent again after a delay that doubles with each claim, or that the error names, with jitter."""
    wanted = error.seconds if isinstance(error, Unserved) else None
    delay = min(MAX_DELAY_SECONDS, wanted or 0.4 * 2.0**row.claims) * random.uniform(0.3, 1.0)
    with single().connect() as conn:
        table.release(conn, row, str(error)[:2000], delay, counts=not isinstance(error, Unserved))
    return Outcome("again", f"again in {delay:.1f} s: {error}")


def held(leases: Leases, row: T, work: Callable[[T], Outcome]) -> Outcome:
    """Do the work of a claimed row. After an error of the database, perhaps for lack of disk, the row is given back.

    Such an attempt does not count. Where that is impossible too, or the row itself exceeds a limit of the database, the
    error is raised, and the lease expires.
    """
    with leases.hold(row):
        try:
            return work(row)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if not (error.sqlstate or "").startswith(LIMITS):
                why = Unserved(f"the database: {' '.join(str(error).split())}", seconds=UNSTORED_SECONDS)
                with contextlib.suppress(psycopg.Error):
                    return give_back(leases.table, row, why)
            raise


def failure_kind(claim: Claimed) -> str:
    """The kind of failure of a step that could not reach what it talks to."""
    return "environment" if isinstance(claim.step, Execute) else "model"
