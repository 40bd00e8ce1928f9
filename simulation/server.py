"""The HTTP server: vLLM's routes, and injected faults."""

import asyncio
import random
import socket
import struct
import time
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from simulation import MODEL, SERVER, chat, complete, tokenizer
from simulation.batch import Sequence
from simulation.load import Engine
from simulation.options import Options
from simulation.parameters import Faults
from weavegen.errors import UsageError
from weavegen_nano import http, protocol


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which also keeps its connections so that a fault can reset one."""

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
        """Reset a connection instead of responding."""
        if (connection := cls.open.get(client)) is not None:
            peer = connection.transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.transport.abort()


RETRY_AFTER = 1
"""Seconds of the header Retry-After of a 429."""
_SLOW = 10
"""Factor by which a slow response takes longer."""


@dataclass
class _Served:
    """What was served over the chat API, as its answers report it."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Api(http.Api):
    def __init__(self, options: Options) -> None:
        self.counted = _Served()
        super().__init__(MODEL, SERVER, options.load.max_model_len)
        self.engine = Engine(options.load)
        self.faults = options.faults.check()
        self._chance = random.Random(options.seed)
        self._plain, self._chat = options.plain, options.chat

    def routes(self) -> list[Route]:
        routes = super().routes()
        if self._plain or self._chat:
            routes = [route for route in routes if route.path not in ("/tokenize", "/detokenize", "/metrics")]
        if self._chat:
            routes = [route for route in routes if route.path != "/v1/completions"]
            routes.append(Route("/v1/chat/completions", self.chat, methods=["POST"]))
        routes.append(Route("/sim/usage", self.usage))
        return [*routes, Route("/sim/faults", self.set_faults, methods=["GET", "POST"])]

    def encode(self, text: str, *, special: bool) -> list[int]:
        return [tokenizer.BOS] * special + tokenizer.encode(text)

    def decode(self, ids: list[int]) -> str:
        return tokenizer.decode(ids)

    def chat_text(self, messages: list[dict[str, str]], asks: bool) -> str:
        """ChatML after the BOS token."""
        said = (f"<|im_start|>{one.get('role')}\n{one.get('content')}<|im_end|>\n" for one in messages)
        return f"<s>{''.join(said)}{'<|im_start|>assistant' + chr(10) if asks else ''}"

    def token_text(self, number: int) -> str:
        return tokenizer.token_text(number)

    def cards(self) -> list[dict[str, Any]]:
        [card] = super().cards()
        if self._plain or self._chat:
            return [{name: card[name] for name in ("id", "object", "created", "owned_by", "root")}]
        return [card]

    def metrics_text(self) -> str:
        return self.engine.metrics()

    async def chat(self, request: Request) -> Response:
        """Respond as a server of the chat API does, unless the request gets a fault."""
        asked = chat.read(await request.body())
        fault = self.faults.draw(self._chance)
        if fault in ("http_500", "http_429", "garbage", "reset", "hang"):
            return await self._spoil(fault, request)
        response = await self.complete(chat.completion_request(asked), request)
        self.counted.requests += 1
        self.counted.prompt_tokens += response.usage.prompt_tokens
        self.counted.completion_tokens += response.usage.completion_tokens
        return http.answer(chat.chat_response(asked, response, SERVER))

    async def usage(self, request: Request) -> Response:
        """What was served over the chat API."""
        return http.answer(asdict(self.counted))

    async def completions(self, request: Request) -> Response:
        """Respond as vLLM does, unless the request gets a fault."""
        await request.body()  # Read before the fault, as a real server would; the request keeps the body.
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
        """Wait for the engine. Raises ClientGone and aborts the sequences if the client hangs up."""
        if self.engine.load.instant:
            self.engine.at_once(work)
        else:
            await http.unless_gone(self.engine.work(work), request)

    async def _spoil(self, fault: str, request: Request) -> Response:
        if fault == "http_500":
            return http.answer(protocol.error_body("simulated fault: EngineCore encountered an issue", 500), 500)
        if fault == "http_429":
            answer = http.answer(protocol.error_body("simulated fault: too many requests are queued", 429), 429)
            answer.headers["Retry-After"] = str(RETRY_AFTER)
            return answer
        if fault == "garbage":
            return Response(b'{"id": "cmpl-simulated-fault", "choi\xff', media_type="application/json")
        if fault == "reset" and request.client is not None:
            _Protocol.cut((request.client.host, request.client.port))
        await http.until_disconnect(request)
        self.engine.batch.counters.finished["abort"] += 1
        return http.client_closed()

    async def set_faults(self, request: Request) -> Response:
        """POST replaces all rates (rates that are not given become 0). Both methods return the current rates."""
        if request.method == "POST":
            try:
                self.faults = msgspec.json.decode(await request.body(), type=Faults).check()
            except UsageError as error:
                raise protocol.BadRequest(str(error)) from None
        return http.answer(asdict(self.faults))


def app(options: Options) -> Starlette:
    """The simulation as an ASGI application."""
    return http.app(_Api(options))


def serve(options: Options) -> None:
    """Serve until interrupted. Raises UsageError if the port is in use."""
    about = f"; {options.load}"
    ready_file = options.ready_file
    http.serve(_Api(options), options.port, options.host, about=about, ready_file=ready_file, connections=_Protocol)
