"""Celery's Redis transport, with two corrections of kombu 5.7: a lost connection must not end the worker, and
acknowledging must be cheap.
"""

from typing import Any

from kombu.transport import redis
from redis.exceptions import ConnectionError


class Channel(redis.Channel):
    """A channel that survives the loss of its connection, and acknowledges over one client."""

    _reused: Any = None

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, unless the connection that it came over is lost."""
        if not self._is_gone():
            super().basic_ack(delivery_tag, multiple)  # type: ignore[no-untyped-call]

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


class Transport(redis.Transport):
    Channel = Channel
