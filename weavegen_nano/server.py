"""Serves models with nano over vLLM's routes."""

import asyncio
import json
import secrets
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from weavegen import chat_template
from weavegen.errors import UsageError
from weavegen.kernel.window import cut
from weavegen_nano import SERVER, TRAINING, http, protocol
from weavegen_nano.counters import MetricsPage
from weavegen_nano.engine import Continuation, Engine, Order, Sampling, Unloaded
from weavegen_nano.llama import ADAPTER_CONFIG, Llama
from weavegen_nano.texts import Texts

LENGTH = 131_072
"""Maximum tokens of a prompt. A prompt longer than the model's window is cut (kernel/window.py)."""
SLOTS = 256
CACHE_TOKENS = 65_536
TASKS = "weavegen_tasks"
"""In a model's entry of `/v1/models`: see `read_tasks`."""

_read_adapter = msgspec.json.Decoder(protocol.AdapterRequest).decode


def read_tasks(folder: Path) -> list[str]:
    """The bootstraps that a model was trained on, and nothing else; none where that is unknown."""
    try:
        return list(json.loads((folder / TRAINING).read_text())["tasks"])
    except (OSError, ValueError, LookupError, TypeError):
        return []


class NanoApi(http.Api):
    """A model, and adapters or other weights for it that are loaded at run time."""

    def __init__(
        self, folder: Path, *, name: str | None = None, slots: int = SLOTS, cache_tokens: int = CACHE_TOKENS
    ) -> None:
        """`folder`: a model in Hugging Face's format. `name`: default: the folder's name. Raises UsageError."""
        model, self.texts = Llama(folder), Texts(folder)
        if self.texts.size > model.shape.vocabulary:
            raise UsageError(
                f"{folder}: the tokenizer has {self.texts.size} tokens and the model {model.shape.vocabulary}: "
                "they belong to different models"
            )
        super().__init__(name or folder.resolve().name, SERVER, LENGTH)
        self.window = model.shape.length
        self._folder, self._slots = folder, slots
        self._start = partial(Engine, texts=self.texts, slots=slots, cache_tokens=cache_tokens)
        self.engine = self._start(model)
        self._engines = {self.model: self.engine}
        self._roots: dict[str, str] = {}
        self._tasks = read_tasks(folder)

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            Route("/v1/load_lora_adapter", self.load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", self.unload, methods=["POST"]),
        ]

    async def load(self, request: Request) -> Response:
        """Load an adapter, as vLLM does, or complete weights of the same shape."""
        body = _read_adapter(await request.body())
        if body.lora_name in self._engines:
            message = f"The lora adapter '{body.lora_name}' has already been loaded."
            raise protocol.BadRequest(message, param="lora_name")
        folder = Path(body.lora_path)
        try:
            complete = not (folder / ADAPTER_CONFIG).exists()
            model = Llama(folder) if complete else Llama(self._folder, folder)
            if model.shape != self.engine.model.shape:
                raise UsageError(f"{folder}: its shape differs from that of {self.model}")
            if complete and Texts(folder).digest != self.texts.digest:
                raise UsageError(f"{folder}: its tokenizer differs from that of {self.model}")
        except UsageError as error:
            raise protocol.BadRequest(str(error), param="lora_path") from None
        self._roots[body.lora_name] = str(folder)
        self._engines[body.lora_name] = self._start(model, counters=self.engine.counters)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        """Unload an adapter. Its unfinished requests get the answer of later ones: it does not exist."""
        body = _read_adapter(await request.body())
        if body.lora_name not in self._roots:
            message = f"The lora adapter '{body.lora_name}' cannot be found."
            raise protocol.BadRequest(message, param="lora_name", status=404)
        del self._roots[body.lora_name]
        await asyncio.to_thread(self._engines.pop(body.lora_name).close)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    def cards(self) -> list[dict[str, Any]]:
        [own] = (card | {TASKS: self._tasks} for card in super().cards())
        loaded = ({"id": name, "root": root, "parent": self.model, TASKS: []} for name, root in self._roots.items())
        return [own, *(own | adapter for adapter in loaded)]

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self.texts.encode(text, special=special)

    def chat_text(self, messages: list[dict[str, str]], asks: bool) -> str:
        try:
            return chat_template.renderer(self._folder)(messages, asks)
        except UsageError as error:
            raise protocol.BadRequest(str(error), param="messages") from None

    def decode(self, ids: list[int]) -> str:
        return self.texts.decode(ids)

    def metrics_text(self) -> str:
        page, engines = MetricsPage(self.model), list(self._engines.values())
        page.add_engine(
            self.engine.counters,
            running=sum(engine.running for engine in engines),
            waiting=sum(engine.waiting for engine in engines),
            usage=sum(engine.usage for engine in engines) / len(engines),
        )
        return page.text()

    async def complete(self, body: protocol.CompletionRequest, request: Request) -> protocol.CompletionResponse:
        protocol.check(body, list(self._engines), self.texts.size, priorities=True)
        if body.n > self._slots:
            raise protocol.BadRequest(f"n must be at most {self._slots}, got {body.n}.", param="n")
        engine = self._engines[body.model or self.model]
        seed = secrets.randbits(62) if body.seed in (None, -1) else body.seed or 0  # -1: as in vLLM
        orders = [self._order(body, self._ids(prompt, body), seed) for prompt in protocol.prompts(body)]
        work = asyncio.gather(*(asyncio.wrap_future(engine.submit(order)) for order in orders))
        try:
            results = await http.unless_gone(work, request)
        except Unloaded:
            raise protocol.BadRequest(f"The model `{body.model}` does not exist.", param="model", status=404) from None
        continuations = [continuation for result in results for continuation in result.continuations]
        read = sum(len(order.prompt) for order in orders)
        written = sum(len(continuation.ids) for continuation in continuations)
        return protocol.CompletionResponse(
            choices=[self._choice(body, *numbered) for numbered in enumerate(continuations)],
            usage=protocol.Usage(read, read + written, written, protocol.TokensDetails(results[-1].cached)),
            model=body.model or self.model,
            system_fingerprint=SERVER,
        )

    def _ids(self, prompt: str | list[int], body: protocol.CompletionRequest) -> list[int]:
        ids = self.texts.encode(prompt, special=body.add_special_tokens) if isinstance(prompt, str) else prompt
        if not ids:
            raise protocol.BadRequest("The decoder prompt cannot be empty", param="prompt")
        if unknown := [number for number in ids if not 0 <= number < self.texts.size]:
            raise protocol.BadRequest(f"Token id {unknown[0]} is out of vocabulary", param="prompt")
        protocol.max_new_tokens(body, len(ids), self.length)
        return ids

    def _order(self, body: protocol.CompletionRequest, ids: list[int], seed: int) -> Order:
        """Make the engine's order. At least a quarter of the window remains for the prompt."""
        max_tokens = 16 if body.max_tokens is None else body.max_tokens
        shown = cut(ids, self.window - min(max_tokens, self.window // 4), self.texts.border)
        sampling = Sampling(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_k=max(0, body.top_k or 0),
            top_p=1.0 if body.top_p is None else body.top_p,
            penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        )
        wanted = tuple(body.logprob_token_ids or ())
        return Order(
            prompt=np.asarray(shown, np.int64),
            n=body.n,
            max_tokens=min(max_tokens, self.window - len(shown)),
            sampling=sampling,
            seed=seed,
            stops=tuple(stop.encode() for stop in protocol.stops(body) if stop),
            end_token=self.texts.end,
            top_logprobs=0 if wanted or body.logprobs is None else body.logprobs,
            logprob_ids=wanted,
            priority=body.priority,
        )

    def _choice(self, body: protocol.CompletionRequest, index: int, continuation: Continuation) -> protocol.Choice:
        logprobs = None
        if body.logprobs is not None:
            logprobs = protocol.completion_logprobs(body, continuation.ids, continuation.tops, self.token_text)
        stop = None if continuation.stop is None else continuation.stop.decode()
        return protocol.Choice(index, continuation.text.decode("utf-8", "replace"), logprobs, continuation.finish, stop)
