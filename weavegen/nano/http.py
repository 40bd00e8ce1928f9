"""The HTTP side of a model server: vLLM's routes over an `Api`, and how it is started."""

import asyncio
import json
import logging
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weavegen.errors import UsageError
from weavegen.nano import protocol
from weavegen.services.http_server import Server

logger = logging.getLogger(__name__)

encode = msgspec.json.Encoder().encode
_read_completion = msgspec.json.Decoder(protocol.CompletionRequest).decode
_read_tokenize = msgspec.json.Decoder(protocol.TokenizeRequest).decode
_read_detokenize = msgspec.json.Decoder(protocol.DetokenizeRequest).decode

T = TypeVar("T")


class Gone(Exception):
    """The client hung up: nobody reads the answer."""


class Api(ABC):
    """What is served. One instance per application."""

    def __init__(self, model: str, server: str, length: int) -> None:
        """`server`: who says so, for people. `length`: tokens of a sequence at most."""
        self.model, self.server, self.length = model, server, length
        self._started = int(time.time())

    @abstractmethod
    def encode(self, text: str, *, special: bool) -> list[int]:
        """Ids of a text; with `special` behind the token that begins a text."""

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """The text of ids. Raises IndexError with one that the vocabulary lacks."""

    @abstractmethod
    def token_text(self, number: int) -> str:
        """The text of one token."""

    @abstractmethod
    async def complete(self, asked: protocol.CompletionRequest, request: Request) -> protocol.CompletionResponse:
        """The answer to a request. Raises BadRequest, and Gone where the client hung up meanwhile."""

    @abstractmethod
    def figures(self) -> str:
        """The answer to `/metrics`."""

    def routes(self) -> list[Route]:
        return [
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/health", self.health),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/metrics", self.metrics),
        ]

    async def completions(self, request: Request) -> Response:
        asked = _read_completion(await request.body())
        try:
            return answer(await self.complete(asked, request))
        except Gone:
            return nobody_reads()

    async def tokenize(self, request: Request) -> Response:
        asked = _read_tokenize(await request.body())
        ids = self.encode(asked.prompt, special=asked.add_special_tokens)
        names = [self.token_text(number) for number in ids] if asked.return_token_strs else None
        return answer(protocol.TokenizeResponse(len(ids), self.length, ids, names))

    async def detokenize(self, request: Request) -> Response:
        asked = _read_detokenize(await request.body())
        try:
            return answer({"prompt": self.decode(asked.tokens)})
        except IndexError as error:
            raise protocol.BadRequest(f"Token id {error} is out of vocabulary", param="tokens") from None

    async def models(self, request: Request) -> Response:
        return answer({"object": "list", "data": self.cards()})

    def cards(self) -> list[dict[str, Any]]:
        """What `/v1/models` says of each model, the server's own first."""
        about = {"id": self.model, "object": "model", "created": self._started, "owned_by": self.server}
        return [about | {"root": self.model, "parent": None, "max_model_len": self.length, "permission": []}]

    async def health(self, request: Request) -> Response:
        return Response()

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.figures())


def answer(value: Any, status: int = 200) -> Response:
    """`value` as JSON."""
    return Response(encode(value), status, media_type="application/json")


def nobody_reads() -> Response:
    """The answer to a client that went away."""
    return Response(status_code=499)


async def hung_up(request: Request) -> None:
    """Wait until the client hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def unless_gone(work: Coroutine[Any, Any, T], request: Request) -> T:
    """Wait for `work`. Raises Gone, and cancels it, if the client hangs up first."""
    job, gone = asyncio.create_task(work), asyncio.create_task(hung_up(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise Gone
        return job.result()
    finally:
        job.cancel()
        gone.cancel()


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, protocol.BadRequest)
    return answer(protocol.error_body(error.message, error.status, error.param), error.status)


async def _unreadable(request: Request, error: Exception) -> Response:
    return answer(protocol.error_body(f"1 validation error: {error}", 400), 400)


async def _left(request: Request, error: Exception) -> Response:
    return nobody_reads()  # the client went away in the middle of its request


def app(api: Api, ready: Callable[[], None] | None = None) -> Starlette:
    """The server as an ASGI application; `ready` is called when it takes requests."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if ready is not None:
            ready()
        yield

    return Starlette(
        routes=api.routes(),
        exception_handlers={
            protocol.BadRequest: _refuse,
            msgspec.MsgspecError: _unreadable,
            ClientDisconnect: _left,
        },
        lifespan=lifespan,
    )


def serve(
    api: Api,
    port: int,
    host: str = "127.0.0.1",
    *,
    about: str = "",
    ready_file: Path | None = None,
    connections: type[HttpToolsProtocol] = HttpToolsProtocol,
) -> None:
    """Serve until interrupted. Port 0 means a free one; `ready_file` gets {"url", "port", "pid"} as JSON.

    `about` is added to the line that is logged when it serves. Raises UsageError if the port is in use.
    """
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    url = f"http://{host}:{port}/v1"

    def ready() -> None:
        logger.info("%s at %s: %s%s", api.model, url, api.server, about)
        if ready_file is not None:
            part = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
            part.write_text(json.dumps({"url": url, "port": port, "pid": os.getpid()}))
            part.replace(ready_file)

    config = uvicorn.Config(
        app(api, ready),
        http=connections,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        headers=[("Server", api.server)],
        timeout_graceful_shutdown=1,
    )
    with listener:
        Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol by name: asyncio sets TCP_NODELAY only where it sees it, and without that an answer may
    # wait 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(
            f"can't listen on {host}:{port} ({error}): give another port, or 0 for a free one"
        ) from None
    return listener
