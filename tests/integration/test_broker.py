"""The patches to Celery's Redis transport."""

import socket
import subprocess
from pathlib import Path

import pytest
from celery import Celery
from kombu.connection import Connection

from tests.support.ports import free_port
from weavegen.services import redis
from weavegen.services.transport import KEPT, Channel, Transport


def received(connection: Connection, name: str = "mended") -> tuple[Channel, str]:
    """A channel, and the tag of the one message in it, which is not acknowledged yet."""
    queue = connection.SimpleQueue(name)
    queue.put({"a": "message"})
    message = queue.get(timeout=5)
    assert isinstance(message.channel, Channel)
    return message.channel, message.delivery_tag


@pytest.fixture
def connection(redis_url: str) -> Connection:
    return Connection(redis_url)


def test_the_app_and_its_clients_use_the_patched_transport(redis_url: str, connection: Connection) -> None:
    assert connection.get_transport_cls() is Transport
    with Celery(broker=redis_url, set_as_current=False) as app:
        assert app.connection_for_write().get_transport_cls() is Transport


def test_a_connection_to_a_host_that_is_gone_ends(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path))
    server = subprocess.Popen([redis.binary(), *options], stdout=subprocess.DEVNULL)
    try:
        with Connection(f"redis://127.0.0.1:{port}/0") as connection:
            connection.ensure_connection(max_retries=50, interval_start=0.1, interval_step=0)
            used = connection.default_channel.pool.get_connection()._sock
            assert 2 < used.gettimeout() <= 60
            assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
    finally:
        server.kill()
        server.wait()


def test_a_message_can_be_acknowledged_after_its_connection_is_closed(connection: Connection) -> None:
    channel, tag = received(connection)
    connection.close()
    channel.basic_ack(tag)


def test_a_closed_connection_raises_a_connection_error(connection: Connection) -> None:
    channel, _ = received(connection)
    connection.close()
    channel._disconnect_pools()
    with pytest.raises(connection.connection_errors):
        channel._create_client()


def test_acknowledgements_share_a_client_until_the_pools_are_closed(connection: Connection) -> None:
    channel, tag = received(connection, KEPT)
    first = channel._create_client()
    assert channel._create_client() is first
    assert first.hexists("unacked", tag)
    channel.basic_ack(tag)
    assert first.hlen("unacked") == 0
    channel._disconnect_pools()
    assert channel._create_client() is not first
    connection.close()


@pytest.mark.parametrize("ending", ["shutdown", "reject"])
def test_only_messages_that_the_sweeper_can_not_send_again_are_kept_in_redis(
    connection: Connection, ending: str
) -> None:
    """A worker that ends, or loses the process of a task, puts messages back from its own memory."""
    channel, tag = received(connection, ending)
    client = channel._create_client()
    assert not client.hexists("unacked", tag)
    if ending == "shutdown":
        channel.qos.restore_unacked_once()
    else:
        channel.basic_reject(tag, requeue=True)
    again = connection.SimpleQueue(ending).get(timeout=5)
    assert (again.payload, again.delivery_info["redelivered"]) == ({"a": "message"}, True)
    again.ack()
    assert client.llen(ending) == 0
    connection.close()
