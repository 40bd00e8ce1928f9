"""Celery's Redis transport, with corrections of kombu 5.7: a lost connection, a malformed message or a key of the
wrong type must not end the process that reads, and acknowledging must be cheap.
"""

from collections.abc import Callable
from queue import Empty
from typing import Any

import msgspec
from kombu.transport import redis, virtual
from redis.exceptions import ConnectionError, ResponseError

from weavegen.pool.http import GONE
from weavegen.services.messages import MALFORMED, Envelope, Warnings, checked, read, warn

deleted = Warnings()
KEPT = "control"
"""The queue of `weavegen.enqueue`, which other programs send once: its messages outlive a worker that is killed."""


class Message(virtual.Message):
    """A message whose body is decoded without kombu's own types, which may raise any error."""

    def _decode(self) -> Any:
        return msgspec.json.decode(self.body)


class QoS(redis.QoS):
    """Keeps the messages that are not acknowledged yet. Those of the queue KEPT stay in Redis, where others may write.

    All others stay only in this process, which costs no Redis command: the sweeper resends what a worker has lost.
    """

    def _is_here(self, tag: str) -> bool:
        """Whether a message is kept only in this process."""
        message = self._delivered.get(tag)  # once: another thread may remove it
        return message is not None and message.delivery_info["routing_key"] != KEPT

    def append(self, message: Any, delivery_tag: str) -> None:
        """Keep a message. If Redis refuses it, perhaps for lack of memory, it is kept only in this process."""
        if message.delivery_info["routing_key"] == KEPT:
            try:
                self.channel.repairing(super().append, message, delivery_tag)
                return
            except ResponseError as error:
                warn(self.unacked_key, f"a message is not kept there: {error}")
        virtual.QoS.append(self, message, delivery_tag)  # type: ignore[no-untyped-call]

    def ack(self, delivery_tag: str) -> None:
        if self._is_here(delivery_tag):
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
        else:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.repairing(super().reject, delivery_tag, requeue)

    def restore_visible(self, *args: Any, **options: Any) -> None:
        self.channel.repairing(super().restore_visible, *args, **options)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        """Put a message back into its queue, or drop it if it is malformed."""
        try:
            if self._is_here(tag):
                self.channel.repairing(self.channel.put_back, self._delivered[tag], client, leftmost)
            else:
                self.channel.repairing(super().restore_by_tag, tag, client, leftmost)
        except MALFORMED as error:
            warn(self.unacked_key, f"a message is dropped: {error}")
            self._remove_from_indices(tag).execute()  # type: ignore[no-untyped-call]


class Channel(redis.Channel):
    """A channel that survives malformed messages and a lost connection or host, and acknowledges over one client."""

    Message = Message
    QoS = QoS
    socket_timeout: Any = 30.0  # kombu waits at most one second for a message, and reads an answer once it has come
    socket_connect_timeout: Any = 5.0
    socket_keepalive: Any = True
    socket_keepalive_options: Any = GONE
    _reused: Any = None
    _in_poll: Any
    _in_listen: Any

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, unless the connection that it came over is lost."""
        if not self._is_gone():
            self.repairing(super().basic_ack, delivery_tag, multiple)

    def _is_gone(self) -> bool:
        return self.connection is None or self.connection.client is None

    def _get_pool(self, asynchronous: bool = False) -> Any:
        """Raise ConnectionError, after which Celery reconnects; kombu's own AttributeError would end the worker."""
        if self._is_gone():
            raise ConnectionError("the connection to Redis is gone")
        return super()._get_pool(asynchronous)  # type: ignore[no-untyped-call]

    def _create_client(self, asynchronous: bool = False) -> Any:
        """One client for all acknowledgements: making a client takes longer than acknowledging."""
        if asynchronous:
            return super()._create_client(asynchronous=True)  # type: ignore[no-untyped-call]
        if self._reused is None or self._reused.connection_pool is not self.pool:
            self._reused = super()._create_client()  # type: ignore[no-untyped-call]
        return self._reused

    def _brpop_read(self, **options: Any) -> bool:
        """As kombu's, but drops a malformed message, which would end the worker and then be put back into the queue."""
        client = self.client
        try:
            try:
                found = client.parse_response(client.connection, "BRPOP", **options)
            except self.connection_errors:
                client.connection.disconnect()
                raise
            except ResponseError as error:
                self.repair(error)
                raise Empty from None
            if not found:
                raise Empty
            queue = found[0].decode(errors="replace").rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            try:
                raw = read(found[1])
            except MALFORMED as error:
                warn(queue, f"a message is dropped: {error}")
            else:
                self.connection._deliver(raw, queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]

    def _receive_one(self, c: Any) -> bool:
        """As kombu's, for commands and events. These may be lost, so errors from handling one are caught, too."""
        try:
            response = c.parse_response()
        except self.connection_errors:
            self._in_listen = None
            raise
        payload = self._handle_message(c, response) if isinstance(response, list | tuple) else {}  # type: ignore[no-untyped-call]
        if payload.get("type") not in (b"message", b"pmessage"):
            return False
        place = payload["channel"].decode(errors="replace").partition(".")[2]
        try:
            return bool(self._deliver_fanout_message(read(payload["data"]), place.split("/", 1)[0]))  # type: ignore[no-untyped-call]
        except MALFORMED as error:
            warn(place, f"a message is dropped: {error}")
            return False

    def put_back(self, message: Any, client: Any, leftmost: bool) -> None:
        """Put back a message that is not in Redis."""
        to = message.delivery_info
        with self.conn_or_acquire(client) as client:
            self._do_restore_message(message._raw, to["exchange"], to["routing_key"], client, leftmost)

    def _do_restore_message(
        self, payload: Any, exchange: Any, routing_key: Any, pipe: Any, leftmost: bool = False
    ) -> None:
        raw = checked(msgspec.convert(payload, Envelope))
        super()._do_restore_message(raw, str(exchange), str(routing_key), pipe, leftmost)  # type: ignore[no-untyped-call]

    def repairing(self, command: Callable[..., Any], *args: Any, queue: str | None = None, **options: Any) -> Any:
        """Run a command on a queue or another key of kombu. Keys of the wrong type are deleted, and it runs again."""
        try:
            return command(*args, **options)
        except ResponseError as error:
            self.repair(error, queue)
            return command(*args, **options)

    def repair(self, error: ResponseError, queue: str | None = None) -> None:
        """Delete kombu's keys that have the wrong type. Raises `error` if it is about something else."""
        if "WRONGTYPE" not in str(error):
            raise error
        kinds = {self.unacked_key: b"hash", self.unacked_index_key: b"zset", self.unacked_mutex_key: b"string"}
        for exchange in self.state.exchanges:
            kinds |= {key % exchange: b"set" for key in (self.keyprefix_queue, self.keyprefix_binding_permanent)}
        for name in {queue or "", *self.state.queue_index, *self._active_queues} - {""}:
            kinds |= {self._q_for_pri(name, step): b"list" for step in self.priority_steps}  # type: ignore[no-untyped-call]
        client = self._create_client()
        for key, kind in kinds.items():
            if (found := client.type(key)) not in (kind, b"none"):
                client.delete(key)
                deleted(key, f"the key is deleted, because it is a {found.decode()} and not a {kind.decode()}")

    def _size(self, queue: str) -> int:
        return int(self.repairing(super()._size, queue, queue=queue))

    def _queue_bind(self, exchange: str, *args: Any) -> None:
        self.repairing(super()._queue_bind, exchange, *args)

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        """Return an exchange's bindings, without malformed ones."""
        return [row for row in self.repairing(super().get_table, exchange) if len(row) == 3]


class Transport(redis.Transport):
    Channel = Channel
