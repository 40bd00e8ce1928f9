"""What a worker takes from the broker: weavegen's tasks, and the remote commands that only read."""

from typing import Any, Literal

import msgspec
from celery.app.amqp import AMQP
from celery.app.control import Control
from kombu import pidbox
from kombu.messaging import Consumer
from redis.exceptions import ResponseError

from tasks.app import app
from weavegen.services.messages import MALFORMED, Id, Name, Warnings, call, warn

READING = (
    "ping", "stats", "active_queues", "registered", "scheduled", "active", "reserved", "revoked", "conf",
    "heartbeat", "enable_events",
)  # fmt: skip
"""The commands that are obeyed, without arguments: what Flower, `weavegen up` and `doctor` send.

They change nothing (workers always send events), and their answers hold no secrets. Not among them: `report` and
`memdump` (details of the host), `query_task`, `hello` (revokes tasks), and all that change something.
"""
refuse = Warnings()
"""Apart from `warn`, so that many malformed messages do not hide a command that was refused."""


class TaskConsumer(Consumer):
    """Receives the messages of a worker's queues, and drops what is not a call of one of weavegen's tasks."""

    def _receive_callback(self, message: Any) -> None:
        try:
            name = message.headers.get("task", "")
            if name not in app.tasks or not name.startswith("weavegen."):
                raise ValueError(f"there is no task {name!r}")
            message._decoded_cache = call(message.headers, message.payload)
        except MALFORMED as error:
            warn(str(message.delivery_info.get("routing_key")), f"a message is dropped: {error}")
            message.reject()
        else:
            super()._receive_callback(message)  # type: ignore[no-untyped-call]


class Messages(AMQP):  # type: ignore[misc]
    Consumer = TaskConsumer


class Answer(msgspec.Struct):
    """The queue for a command's reply."""

    exchange: Literal["reply.celery.pidbox"]
    routing_key: Id


class Command(msgspec.Struct):
    method: Name
    destination: list[Name] | None = None
    reply_to: Answer | None = None
    ticket: Id | None = None
    pattern: None = None
    """A regular expression over the names of workers can take forever."""


class Node(pidbox.Node):
    """Obeys the commands of READING."""

    def handle_message(self, body: Any, message: Any = None) -> None:
        try:
            command = msgspec.convert(body, Command)
            if command.destination and self.hostname not in command.destination:
                return
            if command.method in READING:
                reply = (self.handlers or {})[command.method](self.state)
            else:
                reply = {"error": f"weavegen's workers do not obey {command.method}"}
                refuse("remote control", f"{command.method} is refused")
            if command.reply_to is not None:
                place = msgspec.to_builtins(command.reply_to)
                self.reply({self.hostname: reply}, **place, ticket=command.ticket)  # type: ignore[no-untyped-call]
        except (*MALFORMED, ResponseError) as error:
            refuse("remote control", f"a command is dropped: {error}")


class ReadingControl(Control):  # type: ignore[misc]
    """Sends commands as Celery's own class does, and makes workers answer them with Node."""

    class Mailbox(pidbox.Mailbox):
        node_cls = Node
