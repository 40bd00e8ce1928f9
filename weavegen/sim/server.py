"""The HTTP side of the simulation: vLLM's routes, faults, and how the server is started."""

import asyncio
import json
import logging
import os
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weavegen.errors import UsageError
from weavegen.sim import MODEL, SERVER, complete, protocol, tokenizer
from weavegen.sim.batch import Sequence
from weavegen.sim.load import Engine
from weavegen.sim.parameters import Faults, Load

logger = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode
_read_completion = msgspec.json.Decoder(protocol.CompletionRequest).decode
_read_tokenize = msgspec.json.Decoder(protocol.TokenizeRequest).decode
_read_detokenize = msgspec.json.Decoder(protocol.DetokenizeRequest).decode


class _Protocol(HttpToolsProtocol):
    """uvicorn's, which also remembers its connections so that a fault can cut one."""

    open: dict[tuple[str, int], "_Protocol"] = {}  # noqa: RUF012 (one per process, as the server is)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if self.client is not None:
            self.open[self.client] = self

    def connection_lost(self, exc: Exception | None) -> None:
        if self.client is not None:
            self.open.pop(self.client, None)
        super().connection_lost(exc)

    @classmethod
    def cut(cls, client: tuple[str, int]) -> None:
        """End a connection with a reset instead of an answer."""
        if (connection := cls.open.get(client)) is not None:
            peer = connection.transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.transport.abort()


_SLOW = 10
"""How many times as long a slow answer takes."""


class _Gone(Exception):
    """The client hung up: nobody reads the answer."""


class _Api:
    """The routes. One instance per application."""

    def __init__(self, load: Load, faults: Faults, chance: random.Random, *, plain: bool) -> None:
        self.engine = Engine(load)
        self.faults = faults.check()
        self._chance = chance
        self._plain = plain
        self._started = int(time.time())

    async def completions(self, request: Request) -> Response:
        body = await request.body()
        fault = self.faults.draw(self._chance)
        if fault is not None and fault not in ("truncate", "slow"):
            return await self._spoil(fault, request)
        began = time.monotonic()
        asked = _read_completion(body)
        if self._plain:
            complete.without_extras(asked)
        response, work = complete.complete(asked, self.engine)
        try:
            await self._work(work, request)
            if fault == "slow":
                await _unless_gone(asyncio.sleep((_SLOW - 1) * (time.monotonic() - began)), request)
        except _Gone:
            return Response(status_code=499)
        if not self._plain:
            complete.tell_cached(response, work, asked.n)
        answer = _encode(response)
        return Response(
            answer[: len(answer) // 2] if fault == "truncate" else answer, media_type="application/json"
        )

    async def _work(self, work: list[Sequence], request: Request) -> None:
        """Take the engine's time. Raises _Gone, and frees what was taken, if the client hangs up."""
        if self.engine.load.instant:
            self.engine.at_once(work)
        else:
            await _unless_gone(self.engine.work(work), request)

    async def _spoil(self, fault: str, request: Request) -> Response:
        if fault == "http_500":
            return _json(protocol.error_body("simulated fault: EngineCore encountered an issue", 500), 500)
        if fault == "http_429":
            return _json(protocol.error_body("simulated fault: too many requests are queued", 429), 429)
        if fault == "garbage":
            return Response(b'{"id": "cmpl-simulated-fault", "choi\xff', media_type="application/json")
        if fault == "reset" and request.client is not None:
            _Protocol.cut((request.client.host, request.client.port))
        await _hung_up(request)
        self.engine.batch.counters.finished["abort"] += 1
        return Response(status_code=499)  # nobody reads it

    async def tokenize(self, request: Request) -> Response:
        asked = _read_tokenize(await request.body())
        ids = tokenizer.encode(asked.prompt)
        if asked.add_special_tokens:
            ids = [tokenizer.BOS, *ids]
        names = [tokenizer.token_text(number) for number in ids] if asked.return_token_strs else None
        return _json(protocol.TokenizeResponse(len(ids), self.engine.load.max_model_len, ids, names))

    async def detokenize(self, request: Request) -> Response:
        asked = _read_detokenize(await request.body())
        try:
            return _json({"prompt": tokenizer.decode(asked.tokens)})
        except IndexError as error:
            raise protocol.BadRequest(f"Token id {error} is out of vocabulary", param="tokens") from None

    async def models(self, request: Request) -> Response:
        card = {"id": MODEL, "object": "model", "created": self._started, "owned_by": SERVER, "root": MODEL}
        if not self._plain:
            card |= {"parent": None, "max_model_len": self.engine.load.max_model_len, "permission": []}
        return _json({"object": "list", "data": [card]})

    async def health(self, request: Request) -> Response:
        return Response()

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.engine.metrics())

    async def set_faults(self, request: Request) -> Response:
        """POST replaces all rates (those not named become 0); both methods answer with the present ones."""
        if request.method == "POST":
            try:
                self.faults = msgspec.json.decode(await request.body(), type=Faults).check()
            except UsageError as error:
                raise protocol.BadRequest(str(error)) from None
        return _json(asdict(self.faults))


async def _hung_up(request: Request) -> None:
    """Wait until the client hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def _unless_gone(work: Coroutine[Any, Any, None], request: Request) -> None:
    """Wait for `work`. Raises _Gone, and cancels it, if the client hangs up first."""
    job, gone = asyncio.create_task(work), asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise _Gone
        job.result()
    finally:
        job.cancel()
        gone.cancel()


def _json(value: Any, status: int = 200) -> Response:
    return Response(_encode(value), status, media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, protocol.BadRequest)
    return _json(protocol.error_body(error.message, error.status, error.param), error.status)


async def _unreadable(request: Request, error: Exception) -> Response:
    return _json(protocol.error_body(f"1 validation error: {error}", 400), 400)


async def _nobody_reads(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # the client went away in the middle of its request


def app(
    load: Load | None = None,
    faults: Faults | None = None,
    *,
    plain: bool = False,
    seed: int = 0,
    ready: Callable[[], None] | None = None,
) -> Starlette:
    """The simulation as an ASGI application. `seed` decides which requests the faults strike.

    `plain`: as a server without vLLM's extras, that is without `/tokenize`, `/detokenize`, `/metrics`, prompts of
    token ids and `logprob_token_ids`.
    """
    api = _Api(load or Load(), faults or Faults(), random.Random(seed), plain=plain)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if ready is not None:
            ready()
        yield

    routes: list[tuple[str, Callable[[Request], Awaitable[Response]], list[str]]] = [
        ("/v1/completions", api.completions, ["POST"]),
        ("/v1/models", api.models, ["GET"]),
        ("/health", api.health, ["GET"]),
        ("/sim/faults", api.set_faults, ["GET", "POST"]),
    ]
    if not plain:
        routes += [
            ("/tokenize", api.tokenize, ["POST"]),
            ("/detokenize", api.detokenize, ["POST"]),
            ("/metrics", api.metrics, ["GET"]),
        ]
    return Starlette(
        routes=[Route(path, endpoint, methods=methods) for path, endpoint, methods in routes],
        exception_handlers={
            protocol.BadRequest: _refuse,
            msgspec.MsgspecError: _unreadable,
            ClientDisconnect: _nobody_reads,
        },
        lifespan=lifespan,
    )


def serve(
    port: int,
    host: str = "127.0.0.1",
    *,
    load: Load | None = None,
    faults: Faults | None = None,
    plain: bool = False,
    seed: int = 0,
    ready_file: Path | None = None,
) -> None:
    """Serve until interrupted. Port 0 means a free one; `ready_file` gets {"url", "port", "pid"} as JSON.

    Raises UsageError if the port is in use.
    """
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    url = f"http://{host}:{port}/v1"

    def ready() -> None:
        logger.info("%s at %s: %s; %s", MODEL, url, SERVER, load or Load())
        if ready_file is not None:
            part = ready_file.with_name(f"{ready_file.name}.{os.getpid()}")
            part.write_text(json.dumps({"url": url, "port": port, "pid": os.getpid()}))
            part.replace(ready_file)

    config = uvicorn.Config(
        app(load, faults, plain=plain, seed=seed, ready=ready),
        http=_Protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        headers=[("Server", SERVER)],
        timeout_graceful_shutdown=1,
    )
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


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
