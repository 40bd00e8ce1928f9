"""What every step's task does around its work: claim, keep the lease, store, advance, send."""

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

import sqlalchemy as sa
from celery.signals import worker_shutting_down

from tasks.app import Again, StepFailed, app
from weavegen import config
from weavegen.engine.advance import Engine, Progress
from weavegen.errors import JournalMismatch, RolloutError, StepLost, TransientError, Unserved, UsageError
from weavegen.kernel.steps import Execute
from weavegen.services import fleet
from weavegen.store import environments, steps
from weavegen.store.models import StepStatus
from weavegen.store.session import engine as database
from weavegen.store.session import single
from weavegen.store.steps import Claimed, Message

log = logging.getLogger(__name__)


@dataclass
class Done:
    """What a step's work brought."""

    result: Any
    save: Callable[[sa.Connection], None] | None = None
    """Writes the result's parts into their own tables."""
    model_seconds: float | None = None
    environment_seconds: float | None = None
    stored: Callable[[], None] | None = None
    """Called once all this is committed."""


@cache
def settings() -> config.Config:
    return config.load()


@cache
def engine() -> Engine:
    return Engine(database(), max_active=settings().max_active, resend=2 * settings().lease)


class Held(Protocol):
    """Something that this worker has claimed."""

    @property
    def id(self) -> int: ...
    @property
    def claims(self) -> int:
        """Which claim it is: the fence against workers that lost it."""


class Leases:
    """Renews the leases of all that this process works on, of one kind, for as long as it lives."""

    started: ClassVar["list[Leases]"] = []

    def __init__(
        self,
        what: str,
        renew: Callable[[sa.Connection, list[tuple[int, int]], float], None],
        give_back: Callable[[sa.Connection, list[tuple[int, int]]], None],
    ) -> None:
        """`renew` and `give_back` are told (id, claims) of each; `renew` also for how many seconds."""
        self.what, self.give_back = what, give_back
        self._renew_in_database = renew
        self._held: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self.started.append(self)
        threading.Thread(target=self._renew, name=f"leases of {what}", daemon=True).start()

    @contextmanager
    def hold(self, held: Held) -> Iterator[None]:
        key = (held.id, held.claims)
        with self._lock:
            self._held.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(key)

    def _renew(self) -> None:
        lease = settings().lease
        while True:
            time.sleep(lease / 3)
            if not (held := self.held()):
                continue
            try:
                with single().connect() as conn:
                    self._renew_in_database(conn, held, lease)
            except sa.exc.DBAPIError as error:
                log.warning("leases of %s not renewed, the database does not answer: %s", self.what, error)

    def held(self) -> list[tuple[int, int]]:
        """(id, claims) of what is being worked on."""
        with self._lock:
            return list(self._held)


@cache
def leases() -> Leases:
    return Leases("steps", steps.renew, steps.give_back_held)


@worker_shutting_down.connect
def end_in_time(**_: Any) -> None:
    """After SIGTERM Celery waits for the tasks in flight, however long they take: end after a while."""
    seconds = fleet.drain_seconds(settings())

    def end() -> None:
        time.sleep(seconds)
        open = [(kind, held) for kind in Leases.started if (held := kind.held())]
        try:
            for kind, held in open:
                log.warning(
                    "%d %s did not end within %.0f seconds and are given back", len(held), kind.what, seconds
                )
                with single().connect() as conn:
                    kind.give_back(conn, held)
        finally:
            if open:
                os._exit(0)  # a thread that works on one can't be ended in another way

    threading.Thread(target=end, name="end", daemon=True).start()


def work_on(step_id: int, work: Callable[[Claimed], Done]) -> str:
    """Do one step, if it is still there to be done. Returns what Flower shows as the result.

    Raises Again where it is to be tried again and StepFailed where it has failed, once that is stored: so Flower's
    states are true. Neither makes Celery send anything.
    """
    try:
        with single().connect() as conn:
            held = steps.claim(conn, step_id, f"{socket.gethostname()}:{os.getpid()}", settings().lease)
    except JournalMismatch as error:
        with single().connect() as conn:
            trace_id = steps.trace_of(conn, step_id)
        follow(engine().advance(trace_id), trace_id)  # which starts the tick over
        return str(error)
    if held is None:
        return "nothing to do"
    with leases().hold(held):
        try:
            if held.claims > steps.MAX_CLAIMS:
                raise RolloutError(f"{held.claims} workers took this step and none came to an end with it")
            done = work(held)
        except TransientError as error:
            return give_back(held, error)
        except RolloutError as error:
            return fail(held, error.kind, str(error)[:2000])
        except UsageError as error:  # of this installation: a model that the server lacks, no sandbox
            return fail(held, boundary(held), str(error))
        except (sa.exc.OperationalError, sa.exc.InterfaceError):
            raise  # the database is away; the lease runs out and the sweeper sends the step again
        except Exception as error:
            log.exception("step %d failed for a reason that nobody thought of", held.id)
            return fail(held, "bug", f"{type(error).__name__}: {error}")
        try:
            return settle(
                held,
                StepStatus.DONE,
                done.save,
                done.stored,
                result=done.result,
                model_seconds=done.model_seconds,
                environment_seconds=done.environment_seconds,
            )
        except (sa.exc.DataError, UnicodeEncodeError) as error:
            # Such as a NUL, or half a surrogate pair: it would be refused each time.
            log.exception("step %d has a result that can't be stored", held.id)
            [reason, *_] = str(getattr(error, "orig", error)).splitlines()
            return fail(held, "bug", f"its result can't be stored: {reason}")


def settle(
    held: Claimed,
    status: StepStatus,
    save: Callable[[sa.Connection], None] | None = None,
    stored: Callable[[], None] | None = None,
    **values: Any,
) -> str:
    """Store the end of a step and send what follows."""
    try:
        progress = engine().finish(held, status, save, **values)
    except StepLost as error:
        return str(error)
    if stored is not None:
        stored()
    follow(progress, held.trace_id)
    return str(status)


def fail(held: Claimed, kind: str, reason: str) -> str:
    """Store that a step has failed. Raises StepFailed, or returns why it is no longer this worker's to fail."""
    said = settle(held, StepStatus.FAILED, failure_kind=kind, failure=reason)
    if said != StepStatus.FAILED:
        return said
    raise StepFailed(f"{kind}: {reason}")


def give_back(held: Claimed, error: TransientError) -> str:
    """Let the sweeper send the step again, later each time; in the end it has failed. Raises either."""
    tried = not isinstance(error, Unserved)
    if tried and held.claims >= steps.MAX_CLAIMS:
        reason = f"tried {held.claims} times: {error}"
        return fail(held, boundary(held), reason)
    delay = min(steps.LONGEST_DELAY, 0.4 * 2.0**held.claims) * random.uniform(0.3, 1.0)
    with single().connect() as conn:
        steps.release(conn, held, str(error)[:2000], delay, counts=tried)
    raise Again(f"again in {delay:.1f} s: {error}")


def boundary(held: Claimed) -> str:
    """The kind of failure that a step meets: what it talks to."""
    return "environment" if isinstance(held.step, Execute) else "model"


def follow(progress: Progress, trace_id: int) -> None:
    """After the commit: send the next steps; where a trace is over, start others and close its environment."""
    send(progress.messages)
    if progress.over:
        send(engine().start_queued())
        close_environments(trace_id)


def close_environments(trace_id: int | None = None) -> int:
    """Have the environments of traces that are over closed on their hosts. Returns how many."""
    with single().connect() as conn:
        closing = environments.to_close(conn, trace_id)
    for id, host in closing:
        app.send_task("weavegen.close", args=[id], queue=f"execute.{host}", argsrepr=f"trace {id}")
    return len(closing)


def send(messages: Iterable[Message]) -> None:
    """Hand steps to Celery. What gets lost here, the sweeper sends again."""
    for message in messages:
        app.send_task(
            f"weavegen.{message.kind}", args=[message.step_id], queue=message.queue, argsrepr=message.label
        )
