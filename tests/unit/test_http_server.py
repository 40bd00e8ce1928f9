"""Ctrl-C at the worst moment: before the server's event loop exists."""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette

from weavegen.http_server import Server


class Interrupted(uvicorn.Config):
    """The configuration of a server that gets the signal while its loop is being created."""

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        def make() -> asyncio.AbstractEventLoop:
            signal.raise_signal(signal.SIGINT)
            return asyncio.new_event_loop()

        return make


def test_an_interrupt_before_the_loop_exists_ends_the_server_cleanly() -> None:
    """A resource that is not closed after an exception causes a warning, and warnings are errors here."""
    ended = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        ended.append(app)

    app = Starlette(lifespan=lifespan)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(KeyboardInterrupt):
        Server(Interrupted(app, log_level="warning")).run([listener])
    gc.collect()
    assert ended == [app]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
