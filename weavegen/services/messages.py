"""The form of messages on the broker. Anyone who reaches the broker can write anything into its lists and channels.

A message is read once, here. Only the fields that weavegen uses are kept, so Celery acts on no other: no ETA, no
time limits, no callbacks, no compression.
"""

import logging
import time
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

log = logging.getLogger(__name__)

MAX_BYTES = 10_000_000
"""Maximum size of a message in Redis. The longest text that `weavegen.enqueue` takes is 8 MB there."""
MAX_DEPTH = 50
"""Maximum nesting of lists and objects. Python's own limit differs from place to place."""
LINES, SECONDS = 20, 60.0
"""At most this many lines about dropped messages are logged in this many seconds."""
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading, or handling, a malformed message raises. msgspec's and Unicode's errors are ValueErrors."""

Name = Annotated[str, Meta(max_length=500)]
Id = Annotated[str, Meta(pattern=r"^[\w.@-]{1,200}\Z")]


class Delivery(msgspec.Struct):
    exchange: Name = ""
    routing_key: Name = ""
    redelivered: bool = False


class Properties(msgspec.Struct):
    delivery_tag: Id
    body_encoding: Literal["base64"]
    delivery_info: Delivery
    priority: int | None = None


class Headers(msgspec.Struct, omit_defaults=True):
    """Of a task, a command or a reply to a command."""

    task: Name | None = None
    id: Id | None = None
    root_id: Id | None = None
    parent_id: Id | None = None
    argsrepr: Annotated[str, Meta(max_length=5000)] | None = None
    kwargsrepr: Annotated[str, Meta(max_length=5000)] | None = None
    expires: Annotated[datetime, Meta(tz=True)] | float | None = None
    ticket: Id | None = None
    eta: None = None
    """A worker would hold the message until then."""


class Envelope(msgspec.Struct):
    body: bytes
    properties: Properties
    headers: Headers
    content_type: Literal["application/json"] = field(name="content-type")
    content_encoding: Literal["utf-8"] = field(name="content-encoding")


_envelope = msgspec.json.Decoder(Envelope)


def read(item: bytes) -> dict[str, Any]:
    """Return the message that was read from Redis, as kombu takes it. Raises one of MALFORMED."""
    if len(item) > MAX_BYTES:
        raise ValueError(f"{len(item)} bytes are more than {MAX_BYTES}")
    return checked(_envelope.decode(item))


def checked(envelope: Envelope) -> dict[str, Any]:
    """Return a message of these fields. Raises one of MALFORMED if its body is not JSON or nested too deep."""
    if not _shallow(msgspec.json.decode(envelope.body), MAX_DEPTH):
        raise ValueError(f"lists and objects are nested more than {MAX_DEPTH} deep")
    return dict(msgspec.to_builtins(envelope))


def _shallow(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return depth > 0 and all(_shallow(one, depth - 1) for one in inner)


def call(headers: dict[str, Any], payload: Any) -> dict[str, Any]:
    """Return a task's arguments, in the form in which Celery takes them decoded. Raises one of MALFORMED."""
    if "id" not in headers:
        raise ValueError("the task has no id")
    if "expires" in headers and not 2000 < msgspec.convert(headers["expires"], datetime).year < 3000:
        raise ValueError(f"it expires at {headers['expires']}")
    args, kwargs, _ = msgspec.convert(payload, tuple[list[Any], dict[str, Any], dict[str, Any]])
    return {"args": args, "kwargs": kwargs}


class Warnings:
    """Logs a line about each message that is dropped or refused; if there are many, only their number."""

    began, count = float("-inf"), 0

    def __call__(self, place: str, reason: object) -> None:
        """Say what is wrong at a queue, channel or key."""
        now = time.monotonic()
        if now - self.began >= SECONDS:
            if self.count > LINES:
                log.warning("broker: %d more messages were dropped or refused", self.count - LINES)
            self.began, self.count = now, 0
        self.count += 1
        if self.count <= LINES:
            log.warning("broker: %s: %s", ascii(place)[1:-1], ascii(str(reason))[1:-1][:300])


warn = Warnings()
