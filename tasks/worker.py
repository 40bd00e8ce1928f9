"""The engine of this process, made on first use, and what it does when Celery's worker starts and ends."""

import contextlib
import logging
import os
import sys
import threading
import time
from functools import cache
from typing import Any

from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown, worker_shutting_down

from tasks.app import Again, StepFailed, app, config
from weavegen.engine.leases import Leases
from weavegen.engine.rescoring import Rescorer
from weavegen.engine.step_work import WORK
from weavegen.engine.worker import Outcome, Worker, claimant
from weavegen.errors import UsageError
from weavegen.folders import private
from weavegen.sandbox.providers import provider
from weavegen.sandbox.watch import watching
from weavegen.services import fleet
from weavegen.services.heartbeat import Heartbeat

log = logging.getLogger(__name__)
making = threading.Lock()
running = contextlib.ExitStack()
"""Open while this worker runs."""


def dispatch(name: str, id: int, queue: str, label: str) -> None:
    app.send_task(name, args=[id], queue=queue, argsrepr=label)


@cache
def make_worker() -> Worker:
    return Worker(config, dispatch, WORK)


@cache
def make_rescorer() -> Rescorer:
    return Rescorer(make_worker())


def worker() -> Worker:
    """The worker of this process. A forked process makes its own."""
    with making:  # otherwise threads that start together would make several
        return make_worker()


def rescorer() -> Rescorer:
    """The rescorer of this process."""
    with making:
        return make_rescorer()


def report(outcome: Outcome) -> str:
    """What Flower shows of a task. Raises StepFailed or Again, so that the task's state is true."""
    if outcome.status == "failed":
        raise StepFailed(outcome.detail)
    if outcome.status == "again":
        raise Again(outcome.detail)
    return outcome.detail


def runs_environments(instance: Any) -> bool:
    """Whether a Celery worker takes the steps that run code on this host."""
    return f"execute.{config.host}" in instance.app.amqp.queues.consume_from


@celeryd_after_setup.connect
def refuse_without_isolation(instance: Any, **_: object) -> None:
    """End a worker at once on a host that can't isolate: it would fail every trace that it is given."""
    if runs_environments(instance):
        try:
            provider(config.sandbox).require()
        except UsageError as error:
            sys.stderr.write(f"weavegen: {error}\n")
            raise SystemExit(2) from None


@worker_ready.connect
def begin(sender: Any, **_: object) -> None:
    """Report this worker, and enforce the limits of this host's environments (weavegen/sandbox/watch.py)."""
    queues = sorted(sender.app.amqp.queues.consume_from)
    running.callback(Heartbeat(config, claimant(), sender.hostname, queues).end)
    if runs_environments(sender):
        running.enter_context(watching(private(config.runtime)))


@worker_shutdown.connect
def end(**_: object) -> None:
    running.close()


@worker_shutting_down.connect
def end_in_time(**_: Any) -> None:
    """End after WEAVEGEN_DRAIN seconds: after SIGTERM Celery waits without a limit for tasks in flight."""

    def end() -> None:
        time.sleep(fleet.drain_seconds(config))
        open_leases = 0
        try:
            for leases in Leases.all:
                open_leases += leases.give_back()
        finally:
            if open_leases or any(leases.held() for leases in Leases.all):
                os._exit(0)  # a thread can't be ended from outside

    threading.Thread(target=end, name="end", daemon=True).start()
