"""Ctrl-C at the worst moment: when the server's event loop is not there yet."""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.applications import Starlette

from weavegen.nano.http import Server


class Interrupted(uvicorn.Config):
    """Of a server whose loop is being made as the signal comes."""

    def get_loop_factory(self) -> Callable[[], asyncio.AbstractEventLoop]:
        def make() -> asyncio.AbstractEventLoop:
            signal.raise_signal(signal.SIGINT)
            return asyncio.new_event_loop()

        return make


def test_an_interrupt_while_the_loop_is_made_ends_the_server_in_order() -> None:
    """What is left undone at an exception is a warning as it is collected, and warnings are errors here."""
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
