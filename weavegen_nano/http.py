"""Serves an `Api` over HTTP with vLLM's routes. nano and the simulation use this module."""

import asyncio
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
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

from weavegen.http_server import Server, listen
from weavegen_nano import protocol

logger = logging.getLogger(__name__)

encode = msgspec.json.Encoder().encode
_read_completion = msgspec.json.Decoder(protocol.CompletionRequest).decode
_read_tokenize = msgspec.json.Decoder(protocol.TokenizeRequest).decode
_read_detokenize = msgspec.json.Decoder(protocol.DetokenizeRequest).decode

T = TypeVar("T")


class ClientGone(ClientDisconnect):
    """The client closed the connection before it got its response."""


class Api(ABC):
    """The model behind the routes. One instance per application."""

    def __init__(self, model: str, server: str, length: int) -> None:
        """`server`: its name in headers and model lists. `length`: maximum tokens of a sequence."""
        self.model, self.server, self.length = model, server, length
        self._started = int(time.time())

    @abstractmethod
    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the token ids of a text. `special`: begin with the BOS token."""

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """Return the text of token ids. Raises IndexError with an id that is not in the vocabulary."""

    def token_text(self, number: int) -> str:
        return self.decode([number])

    @abstractmethod
    def chat_text(self, messages: list[dict[str, str]], asks: bool) -> str:
        """Apply the model's chat template. Raises BadRequest if it has none, or refuses the messages."""

    @abstractmethod
    async def complete(self, body: protocol.CompletionRequest, request: Request) -> protocol.CompletionResponse:
        """Answer a request. Raises BadRequest, and ClientGone if the client disconnects."""

    @abstractmethod
    def metrics_text(self) -> str:
        """Return the body of `/metrics`."""

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
        return answer(await self.complete(_read_completion(await request.body()), request))

    async def tokenize(self, request: Request) -> Response:
        body = _read_tokenize(await request.body())
        if (body.prompt is None) == (body.messages is None):
            raise protocol.BadRequest("Either 'prompt' or 'messages' must be given.", param="prompt")
        if body.messages is not None:
            text, special = self.chat_text(body.messages, body.add_generation_prompt), False
        else:
            text, special = body.prompt or "", True
        if body.add_special_tokens is not None:
            special = body.add_special_tokens
        ids = self.encode(text, special=special)
        return answer(protocol.TokenizeResponse(len(ids), self.length, ids))

    async def detokenize(self, request: Request) -> Response:
        body = _read_detokenize(await request.body())
        try:
            return answer({"prompt": self.decode(body.tokens)})
        except IndexError as error:
            raise protocol.BadRequest(f"Token id {error} is out of vocabulary", param="tokens") from None

    async def models(self, request: Request) -> Response:
        return answer({"object": "list", "data": self.cards()})

    def cards(self) -> list[dict[str, Any]]:
        """Return the entries of `/v1/models`, the server's own model first."""
        about = {"id": self.model, "object": "model", "created": self._started, "owned_by": self.server}
        return [about | {"root": self.model, "parent": None, "max_model_len": self.length, "permission": []}]

    async def health(self, request: Request) -> Response:
        return Response()

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.metrics_text())


def answer(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


def client_closed() -> Response:
    """Make the response to a client that has disconnected."""
    return Response(status_code=499)


async def until_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def unless_gone(work: Awaitable[T], request: Request) -> T:
    """Wait for `work`. If the client disconnects first, cancel `work` and raise ClientGone."""
    job, gone = asyncio.ensure_future(work), asyncio.create_task(until_disconnect(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise ClientGone
        return job.result()
    finally:
        job.cancel()
        gone.cancel()


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return client_closed()
    if isinstance(error, protocol.BadRequest):
        return answer(protocol.error_body(error.message, error.status, error.param), error.status)
    return answer(protocol.error_body(f"1 validation error: {error}", 400), 400)


def app(api: Api, ready: Callable[[], None] | None = None) -> Starlette:
    """Make the ASGI application. `ready` is called when it accepts requests."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if ready is not None:
            ready()
        yield

    errors = dict.fromkeys((protocol.BadRequest, msgspec.MsgspecError, ClientDisconnect), _refuse)
    return Starlette(routes=api.routes(), exception_handlers=errors, lifespan=lifespan)


def serve(
    api: Api,
    port: int,
    host: str = "127.0.0.1",
    *,
    about: str = "",
    ready_file: Path | None = None,
    connections: type[HttpToolsProtocol] = HttpToolsProtocol,
) -> None:
    """Serve until interrupted. Port 0 means any free port. Raises UsageError if the port is in use.

    `ready_file`: receives {"url", "port", "pid"} as JSON when the server is ready. `about`: text for the log line
    that says so.
    """
    listener = listen(host, port)
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
