"""The simulation behind vLLM's routes, and the faults that can strike its answers."""

import asyncio
import random
import socket
import struct
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from simulation import MODEL, SERVER, complete, tokenizer
from simulation.batch import Sequence
from simulation.load import Engine
from simulation.parameters import Faults, Load
from weavegen.errors import UsageError
from weavegen.nano import http, protocol


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


class _Api(http.Api):
    def __init__(self, load: Load, faults: Faults, chance: random.Random, *, plain: bool) -> None:
        super().__init__(MODEL, SERVER, load.max_model_len)
        self.engine = Engine(load)
        self.faults = faults.check()
        self._chance = chance
        self._plain = plain

    def routes(self) -> list[Route]:
        routes = super().routes()
        if self._plain:
            routes = [route for route in routes if route.path not in ("/tokenize", "/detokenize", "/metrics")]
        return [*routes, Route("/sim/faults", self.set_faults, methods=["GET", "POST"])]

    def encode(self, text: str, *, special: bool) -> list[int]:
        return [tokenizer.BOS] * special + tokenizer.encode(text)

    def decode(self, ids: list[int]) -> str:
        return tokenizer.decode(ids)

    def token_text(self, number: int) -> str:
        return tokenizer.token_text(number)

    def cards(self) -> list[dict[str, Any]]:
        [card] = super().cards()
        if self._plain:
            return [{name: card[name] for name in ("id", "object", "created", "owned_by", "root")}]
        return [card]

    def metrics_text(self) -> str:
        return self.engine.metrics()

    async def completions(self, request: Request) -> Response:
        """As any server's, unless a fault strikes."""
        await request.body()  # kept by the request: it is read before the fault, as a real one would be
        fault = self.faults.draw(self._chance)
        if fault is not None and fault not in ("truncate", "slow"):
            return await self._spoil(fault, request)
        began = time.monotonic()
        response = await super().completions(request)
        if response.status_code != 200:
            return response
        if fault == "slow":
            try:
                await http.unless_gone(asyncio.sleep((_SLOW - 1) * (time.monotonic() - began)), request)
            except http.ClientGone:
                return http.client_closed()
        if fault == "truncate":
            whole = bytes(response.body)
            return Response(whole[: len(whole) // 2], media_type="application/json")
        return response

    async def complete(self, body: protocol.CompletionRequest, request: Request) -> protocol.CompletionResponse:
        if self._plain:
            complete.without_extras(body)
        response, work = complete.complete(body, self.engine)
        await self._work(work, request)
        if not self._plain:
            complete.tell_cached(response, work, body.n)
        return response

    async def _work(self, work: list[Sequence], request: Request) -> None:
        """Take the engine's time. Raises Gone, and frees what was taken, if the client hangs up."""
        if self.engine.load.instant:
            self.engine.at_once(work)
        else:
            await http.unless_gone(self.engine.work(work), request)

    async def _spoil(self, fault: str, request: Request) -> Response:
        if fault == "http_500":
            return http.answer(protocol.error_body("simulated fault: EngineCore encountered an issue", 500), 500)
        if fault == "http_429":
            return http.answer(protocol.error_body("simulated fault: too many requests are queued", 429), 429)
        if fault == "garbage":
            return Response(b'{"id": "cmpl-simulated-fault", "choi\xff', media_type="application/json")
        if fault == "reset" and request.client is not None:
            _Protocol.cut((request.client.host, request.client.port))
        await http.until_disconnect(request)
        self.engine.batch.counters.finished["abort"] += 1
        return http.client_closed()

    async def set_faults(self, request: Request) -> Response:
        """POST replaces all rates (those not named become 0); both methods answer with the present ones."""
        if request.method == "POST":
            try:
                self.faults = msgspec.json.decode(await request.body(), type=Faults).check()
            except UsageError as error:
                raise protocol.BadRequest(str(error)) from None
        return http.answer(asdict(self.faults))


def _api(load: Load | None, faults: Faults | None, plain: bool, seed: int) -> _Api:
    return _Api(load or Load(), faults or Faults(), random.Random(seed), plain=plain)


def app(
    load: Load | None = None,
    faults: Faults | None = None,
    *,
    plain: bool = False,
    seed: int = 0,
) -> Starlette:
    """The simulation as an ASGI application. `seed` decides which requests the faults strike.

    `plain`: as a server without vLLM's extras, that is without `/tokenize`, `/detokenize`, `/metrics`, prompts of
    token ids and `logprob_token_ids`.
    """
    return http.app(_api(load, faults, plain, seed))


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
    api = _api(load, faults, plain, seed)
    http.serve(api, port, host, about=f"; {api.engine.load}", ready_file=ready_file, connections=_Protocol)
