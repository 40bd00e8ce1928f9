"""The Celery app. `celery -A tasks worker -Q sample,score` works as Celery users expect.

Messages carry ids only and may be lost, doubled or late: the journal in Postgres decides what is done. Whoever
reaches the broker can send anything, so only JSON is read, and a task refuses arguments that it does not declare.
"""

import datetime
import inspect
import logging
import re
import time
from functools import cache
from typing import Annotated, Any

import msgspec
from celery import Celery, Task, bootsteps
from celery.exceptions import Retry
from celery.schedules import schedule as periodic
from msgspec import Meta

from weavegen import config as configuration
from weavegen.errors import UsageError
from weavegen.services.redis import broker_url, place

log = logging.getLogger(__name__)
config = configuration.load()

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""An int argument of a task: the id of a row."""
Short = Annotated[str, Meta(max_length=500)]
MAX_BYTES = 2_000_000
"""Maximum size of the arguments of one task, as JSON."""

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped NUL in JSON, which PostgreSQL refuses. After an escaped backslash it is plain text."""


class Enqueue(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `weavegen.enqueue`, which other programs send."""

    bootstrap: Annotated[str, Meta(max_length=1_000_000)]
    n: Annotated[int, Meta(ge=1, le=100_000)] = 1
    name: Short | None = None
    params: dict[str, Any] | None = None
    settings: dict[str, Any] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    model: Short | None = None
    agent: Short = "weave"
    user: Short | None = None
    check: bool = False


class Again(Retry):  # type: ignore[misc]
    """Sets the task's state to RETRY in Flower. Celery sends no message: the sweeper sends the step again."""

    def __repr__(self) -> str:  # Flower shows it
        return str(self.message)


class StepFailed(Exception):
    """Sets the task's state to FAILURE in Flower. The failure of the step itself is stored already."""


class Checked(Task):  # type: ignore[misc]
    """A task that refuses undeclared arguments in one line, before it does anything."""

    throws = (UsageError, StepFailed)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UsageError."""
        try:
            check(self.name, self.run, args, kwargs)
        except (TypeError, ValueError, RecursionError) as error:  # msgspec's and Unicode's are ValueErrors
            refusal = f"{self.name} refuses its arguments: {ascii(str(error))[1:-1][:300]}"
            log.warning("%s", refusal)
            raise UsageError(refusal) from None
        return self.run(*args, **kwargs)


def check(name: str, run: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise TypeError or ValueError if a task does not take these arguments."""
    given = signature(run).bind(*args, **kwargs).arguments
    values = {key: value for key, value in given.items() if key != "options"} | given.get("options", {})
    encoded = msgspec.json.encode(values)
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"{len(encoded)} bytes of JSON are more than {MAX_BYTES}")
    if NUL.search(encoded):
        raise ValueError("they contain a NUL")
    if name == "weavegen.enqueue":
        msgspec.convert(values, Enqueue)
        return
    for key, value in values.items():
        declared = signature(run).parameters[key].annotation
        msgspec.convert(value, Id if declared is int else declared)


@cache
def signature(run: Any) -> inspect.Signature:
    return inspect.signature(run)


def steady() -> datetime.datetime:
    """The time since this machine started, as beat compares times: with the clock, a jump back would stop it."""
    return datetime.datetime.fromtimestamp(time.monotonic(), datetime.UTC)


def every(seconds: float, task: str, **options: Any) -> dict[str, Any]:
    """An entry of beat's schedule. Messages expire by the clock of the worker's host, which may differ by minutes."""
    return {"task": task, "schedule": periodic(seconds, nowfun=steady), "options": {"expires": 300.0, **options}}


schedule: dict[str, dict[str, Any]] = {
    "sweep": every(1.0, "weavegen.sweep"),
    "campaigns": every(1.0, "weavegen.sweep_campaigns"),
    "index": every(2.0, "weavegen.index", queue="lint"),
    "refresh": every(60.0, "weavegen.refresh"),
}
if config.discord_token is not None:
    schedule["discord"] = every(1.0, "weavegen.discord")


class BrokerAddress(bootsteps.StartStopStep):  # type: ignore[misc]
    """What workers report about their broker (`celery inspect stats`, Flower), without its password.

    Celery itself reports the whole address of a broker on a unix socket.
    """

    requires = ("celery.worker.consumer.connection:Connection",)

    def info(self, consumer: Any) -> dict[str, Any]:
        """Replaces Celery's own."""
        info = dict(consumer.connection.info()) if consumer.connection else {}
        info.pop("password", None)
        return {"broker": info | {"hostname": place(info.get("hostname") or ""), "alternates": []}}


class EventsTogether(bootsteps.StartStopStep):  # type: ignore[misc]
    """Sends the events about tasks twice a second, for Flower. Celery publishes them after each task."""

    requires = ("celery.worker.consumer.events:Events",)
    timer: Any = None

    def start(self, consumer: Any) -> None:
        events = consumer.event_dispatcher
        events.on_send_buffered, events.buffer_limit = None, 1000
        self.timer = consumer.timer.call_repeatedly(0.5, events.flush)

    def stop(self, consumer: Any) -> None:
        if self.timer is not None:  # else there was no connection yet
            self.timer.cancel()
            consumer.event_dispatcher.flush()


app = Celery(
    "weavegen",
    broker=broker_url(config),
    task_cls=Checked,
    amqp="tasks.receiving:Messages",
    control="tasks.receiving:ReadingControl",
    include=["tasks.steps", "tasks.periodic"],
)
app.conf.update(
    accept_content=["json"],
    task_serializer="json",
    result_serializer="json",
    result_accept_content=["json"],
    event_serializer="json",
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_default_queue="control",
    task_create_missing_queues=True,
    worker_prefetch_multiplier=1,
    worker_send_task_events=True,
    task_send_sent_event=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    # Far longer than any task: the sweeper restarts a dead worker's steps, not Redis.
    broker_transport_options={"visibility_timeout": 6 * 3600},
    beat_schedule=schedule,
    # A file would keep times of `steady` beyond the restart of the machine, and a killed beat may leave a broken one.
    beat_scheduler="celery.beat:Scheduler",
)
app.steps["consumer"] |= {BrokerAddress, EventsTogether}
