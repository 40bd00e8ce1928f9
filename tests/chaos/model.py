"""A TCP relay before the simulated model, which can be made to misbehave."""

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal
from urllib.parse import urlsplit

Mode = Literal["well", "refuses", "hangs", "resets", "answers garbage", "cuts its JSON", "answers 500"]

OVERLOADED = b"<html>Internal Server Error</html>"


class Relay:
    """Stands before a server, on a port of its own. `mode` applies to everything that arrives after it was set."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = parts.hostname, parts.port
        self._mode: Mode = "well"
        self._changed = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._random = random.Random(0)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = 0
        self._run(self._listen())
        self.url = f"http://127.0.0.1:{self.port}/v1"

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._run(self._change(mode))

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._relay, "127.0.0.1", self.port, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _shut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in list(self._open):
            reset(writer)

    async def _end(self) -> None:
        await self._shut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _change(self, mode: Mode) -> None:
        before, self._mode = self._mode, mode
        self._changed.set()
        self._changed = asyncio.Event()
        if mode == "refuses":
            await self._shut()
        elif before == "refuses":
            await self._listen()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            upstream_reader, upstream = await asyncio.open_connection(*self._server)
            self._open.add(upstream)
            try:
                await asyncio.gather(self._requests(reader, upstream, writer), self._answers(upstream_reader, writer))
            finally:
                self._open.discard(upstream)
                upstream.close()
        except (OSError, asyncio.CancelledError):
            pass  # one side has closed, or everything ends: close the other side
        finally:
            self._open.discard(writer)
            writer.close()

    async def _requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(2**18):
            if self._mode == "resets":
                reset(back)
                raise ConnectionResetError
            if self._mode == "answers 500":
                head = f"HTTP/1.1 500 Internal Server Error\r\nContent-Length: {len(OVERLOADED)}\r\n\r\n"
                back.write(head.encode() + OVERLOADED)
                await back.drain()
                raise ConnectionResetError
            upstream.write(data)
            await upstream.drain()
        upstream.write_eof()

    async def _answers(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await upstream.read(2**18):
            if self._mode == "hangs":
                await self._changed.wait()
                reset(writer)
                raise ConnectionResetError
            if self._mode == "answers garbage":
                head, end, body = data.partition(b"\r\n\r\n")
                data = head + end + self._random.randbytes(len(body)) if end else self._random.randbytes(len(data))
            elif self._mode == "cuts its JSON":
                writer.write(data[: len(data) // 2])
                await writer.drain()
                raise ConnectionResetError
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side reads a reset and not an end."""
    found = writer.get_extra_info("socket")
    if found is not None:
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
