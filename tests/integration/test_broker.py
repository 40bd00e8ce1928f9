"""The patches to Celery's Redis transport."""

import pytest
from celery import Celery
from kombu.connection import Connection

from weavegen.services.transport import Channel, Transport


def received(connection: Connection) -> tuple[Channel, str]:
    """A channel, and the tag of the one message in it, which is not acknowledged yet."""
    queue = connection.SimpleQueue("mended")
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
    channel, tag = received(connection)
    first = channel._create_client()
    assert channel._create_client() is first
    channel.basic_ack(tag)
    assert first.hlen("unacked") == 0
    channel._disconnect_pools()
    assert channel._create_client() is not first
    connection.close()
