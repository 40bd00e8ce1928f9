"""The Celery app. `celery -A tasks worker -Q sample,score` works as Celery users expect.

Messages carry ids only and may be lost, doubled or late: the journal in Postgres decides what is done.
Only JSON is read, and a task that is sent what it is not declared with refuses it: whoever reaches the broker can
send anything.
"""

import inspect
import logging
import re
from functools import cache
from typing import Annotated, Any

import msgspec
from celery import Celery, Task, bootsteps
from celery.exceptions import Retry
from kombu.transport import TRANSPORT_ALIASES
from msgspec import Meta

from weavegen import config
from weavegen.errors import UsageError
from weavegen.services.redis import broker_url, place

log = logging.getLogger(__name__)
settings = config.load()

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
"""What a task gets that is declared with an int: the number of a row."""
Short = Annotated[str, Meta(max_length=500)]
MOST_BYTES = 2_000_000
"""Of the arguments of one task, as JSON."""

NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""In JSON; an escaped backslash before it makes it a text about NUL. PostgreSQL takes none."""


class Enqueue(msgspec.Struct, forbid_unknown_fields=True):
    """Arguments of `weavegen.enqueue`, which come from programs that are not ours."""

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
    """Raised where something is to be tried again: the task's state. Celery sends no message, the sweeper does."""

    def __repr__(self) -> str:  # which Flower shows; Celery's own is about its attributes
        return str(self.message)


class StepFailed(Exception):
    """A step has failed, which is stored: raised for the task's state in Flower alone, and logged as expected."""


class Checked(Task):  # type: ignore[misc]
    """A task that refuses arguments which it is not declared with, in one line, before anything is done."""

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
    """Raises TypeError or ValueError where a task can't be called so."""
    if not name.startswith("weavegen."):
        raise TypeError("Celery's own tasks are not used here")
    given = signature(run).bind(*args, **kwargs).arguments
    values = {key: value for key, value in given.items() if key != "options"} | given.get("options", {})
    encoded = msgspec.json.encode(values)
    if len(encoded) > MOST_BYTES:
        raise ValueError(f"{len(encoded)} bytes of JSON are more than {MOST_BYTES}")
    if NUL.search(encoded):
        raise ValueError("there is a NUL in it")
    if name == "weavegen.enqueue":
        msgspec.convert(values, Enqueue)
        return
    for key, value in values.items():
        declared = signature(run).parameters[key].annotation
        msgspec.convert(value, Id if declared is int else declared)


@cache
def signature(run: Any) -> inspect.Signature:
    return inspect.signature(run)


schedule: dict[str, dict[str, Any]] = {
    "sweep": {"task": "weavegen.sweep", "schedule": 1.0, "options": {"expires": 5.0}},
    "campaigns": {"task": "weavegen.sweep_campaigns", "schedule": 1.0, "options": {"expires": 5.0}},
    "index": {"task": "weavegen.index", "schedule": 2.0, "options": {"expires": 2.0, "queue": "lint"}},
    "refresh": {"task": "weavegen.refresh", "schedule": 60.0, "options": {"expires": 60.0}},
}
if settings.discord_token is not None:
    schedule["discord"] = {"task": "weavegen.discord", "schedule": 1.0, "options": {"expires": 2.0}}


class BrokersPlace(bootsteps.StartStopStep):  # type: ignore[misc]
    """What workers tell of their broker (`celery inspect stats`, Flower).

    Of one on a unix socket Celery itself tells the whole address, password and all.
    """

    requires = ("celery.worker.consumer.connection:Connection",)

    def info(self, consumer: Any) -> dict[str, Any]:
        """In place of Celery's own."""
        told = dict(consumer.connection.info()) if consumer.connection else {}
        told.pop("password", None)
        return {"broker": told | {"hostname": place(told.get("hostname") or ""), "alternates": []}}


TRANSPORT_ALIASES |= dict.fromkeys(("redis", "rediss"), "tasks.broker:Transport")
app = Celery(
    "weavegen",
    broker=broker_url(settings),
    task_cls=Checked,
    include=[
        f"tasks.{name}"
        for name in ("steps", "execute", "consult", "traces", "rescore", "index", "refresh", "discord")
    ],
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
    # Far beyond any task: what a dead worker held comes back through the sweeper, not through Redis.
    broker_transport_options={"visibility_timeout": 6 * 3600},
    beat_schedule=schedule,
)
app.steps["consumer"].add(BrokersPlace)
