"""nano behind vLLM's routes."""

import asyncio
import secrets
import time
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from weavegen.errors import UsageError
from weavegen.nano import SERVER, http, protocol
from weavegen.nano.attention import BLOCK
from weavegen.nano.counters import Figures
from weavegen.nano.engine import Continuation, Engine, Order, Served
from weavegen.nano.llama import Llama
from weavegen.nano.lora import CONFIG
from weavegen.nano.sampling import Sampling
from weavegen.nano.texts import Texts, cut

LENGTH = 131_072
"""Tokens of a prompt that are taken; `texts.cut` says what of it the model is shown."""
SLOTS = 256
CACHE_TOKENS = 65_536

_read_adapter = msgspec.json.Decoder(protocol.AdapterRequest).decode


class NanoApi(http.Api):
    """A model, and adapters or other weights for it that are loaded while it serves."""

    def __init__(
        self, folder: Path, *, name: str | None = None, slots: int = SLOTS, cache_tokens: int = CACHE_TOKENS
    ) -> None:
        """`folder`: of the model, in Hugging Face's format; `name`: the folder's by default. Raises UsageError."""
        model, self.texts = Llama(folder), Texts(folder)
        if self.texts.size > model.shape.vocabulary:
            raise UsageError(
                f"{folder}: the tokenizer has {self.texts.size} tokens and the model {model.shape.vocabulary}: "
                "they belong to different models"
            )
        super().__init__(name or folder.resolve().name, SERVER, LENGTH)
        self.window = model.shape.length
        self._folder, self._slots, self._cache_tokens = folder, slots, cache_tokens
        self.engine = Engine(model, self.texts, slots=slots, cache_tokens=cache_tokens)
        self._engines = {self.model: self.engine}
        self._roots: dict[str, str] = {}

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            Route("/v1/load_lora_adapter", self.load, methods=["POST"]),
            Route("/v1/unload_lora_adapter", self.unload, methods=["POST"]),
        ]

    async def load(self, request: Request) -> Response:
        """vLLM's way to add an adapter while it serves. A folder with all weights anew will do, too."""
        asked = _read_adapter(await request.body())
        if asked.lora_name in self._engines:
            message = f"The lora adapter '{asked.lora_name}' has already been loaded."
            raise protocol.BadRequest(message, param="lora_name")
        folder = Path(asked.lora_path)
        try:
            own = not (folder / CONFIG).exists()
            model = Llama(folder) if own else Llama(self._folder, folder)
            if model.shape != self.engine.model.shape:
                raise UsageError(f"{folder}: its shape is not that of {self.model}")
            if own and Texts(folder).digest != self.texts.digest:
                raise UsageError(f"{folder}: its tokenizer is not that of {self.model}")
        except UsageError as error:
            raise protocol.BadRequest(str(error), param="lora_path") from None
        self._roots[asked.lora_name] = str(folder)
        self._engines[asked.lora_name] = Engine(
            model,
            self.texts,
            slots=self._slots,
            cache_tokens=self._cache_tokens,
            counters=self.engine.counters,
        )
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        """Forget one that was loaded. What it is at is not answered any more."""
        asked = _read_adapter(await request.body())
        if asked.lora_name not in self._roots:
            message = f"The lora adapter '{asked.lora_name}' cannot be found."
            raise protocol.BadRequest(message, param="lora_name", status=404)
        del self._roots[asked.lora_name]
        self._engines.pop(asked.lora_name).close()
        return PlainTextResponse(f"Success: LoRA adapter '{asked.lora_name}' removed successfully.")

    def cards(self) -> list[dict[str, Any]]:
        [own] = super().cards()
        loaded = ({"id": name, "root": root, "parent": self.model} for name, root in self._roots.items())
        return [own, *(own | one for one in loaded)]

    def encode(self, text: str, *, special: bool) -> list[int]:
        return self.texts.encode(text, special=special)

    def decode(self, ids: list[int]) -> str:
        return self.texts.decode(ids)

    def token_text(self, number: int) -> str:
        return self.texts.decode([number])

    def figures(self) -> str:
        figures, engines = Figures(self.model), list(self._engines.values())
        size = sum(engine.cache.size for engine in engines)
        figures.of_engine(
            self.engine.counters,
            running=sum(engine.running for engine in engines),
            waiting=sum(engine.waiting for engine in engines),
            usage=sum(engine.cache.usage for engine in engines) / len(engines),
            cache={
                "block_size": BLOCK,
                "enable_prefix_caching": size > 0,
                "kv_cache_size_tokens": size * BLOCK,
                "num_gpu_blocks": size,
            },
        )
        return figures.text()

    async def complete(self, asked: protocol.CompletionRequest, request: Request) -> protocol.CompletionResponse:
        protocol.check(asked, list(self._engines), self.texts.size, priorities=True)
        if asked.n > self._slots:
            raise protocol.BadRequest(f"n must be at most {self._slots}, got {asked.n}.", param="n")
        engine = self._engines[asked.model or self.model]
        prompts = [self._ids(prompt, asked) for prompt in protocol.prompts(asked)]
        seed = secrets.randbits(62) if asked.seed is None else asked.seed
        orders = [self._order(asked, ids, seed) for ids in prompts]
        served = await http.unless_gone(_serve(engine, orders), request)
        return self._response(asked, prompts, orders, served)

    def _ids(self, prompt: str | list[int], asked: protocol.CompletionRequest) -> list[int]:
        ids = self.texts.encode(prompt, special=asked.add_special_tokens) if isinstance(prompt, str) else prompt
        if not ids:
            raise protocol.BadRequest("The decoder prompt cannot be empty", param="prompt")
        if strange := [number for number in ids if not 0 <= number < self.texts.size]:
            raise protocol.BadRequest(f"Token id {strange[0]} is out of vocabulary", param="prompt")
        protocol.room(asked, len(ids), self.length)
        return ids

    def _order(self, asked: protocol.CompletionRequest, ids: list[int], seed: int) -> Order:
        """What the engine is asked. A quarter of the window at least is left to what a prompt shows."""
        most = 16 if asked.max_tokens is None else asked.max_tokens
        shown = cut(ids, self.window - min(most, self.window // 4), self.texts.border)
        how = Sampling(
            temperature=1.0 if asked.temperature is None else asked.temperature,
            top_k=max(0, asked.top_k or 0),
            top_p=1.0 if asked.top_p is None else asked.top_p,
            penalty=1.0 if asked.repetition_penalty is None else asked.repetition_penalty,
        )
        wanted = tuple(asked.logprob_token_ids or ())
        return Order(
            prompt=shown,
            n=asked.n,
            most=min(most, self.window - len(shown)),
            how=how,
            seed=seed,
            stops=tuple(stop.encode() for stop in protocol.stops(asked) if stop),
            end=self.texts.end,
            top=0 if wanted or asked.logprobs is None else asked.logprobs,
            ids=wanted,
            priority=asked.priority,
        )

    def _response(
        self,
        asked: protocol.CompletionRequest,
        prompts: list[list[int]],
        orders: list[Order],
        served: list[Served],
    ) -> protocol.CompletionResponse:
        choices = [
            self._choice(asked, len(one.continuations) * number + at, ids, continuation)
            for number, (ids, one) in enumerate(zip(prompts, served, strict=True))
            for at, continuation in enumerate(one.continuations)
        ]
        read = sum(len(order.prompt) for order in orders)
        written = sum(len(continuation.ids) for one in served for continuation in one.continuations)
        return protocol.CompletionResponse(
            id=f"cmpl-{secrets.token_hex(8)}",
            created=int(time.time()),
            choices=choices,
            usage=protocol.Usage(
                prompt_tokens=read,
                total_tokens=read + written,
                completion_tokens=written,
                prompt_tokens_details=protocol.TokensDetails(served[-1].cached),
            ),
            model=asked.model or self.model,
            system_fingerprint=SERVER,
        )

    def _choice(
        self, asked: protocol.CompletionRequest, index: int, ids: list[int], continuation: Continuation
    ) -> protocol.Choice:
        text = bytes(continuation.text)
        if asked.include_stop_str_in_output and continuation.stop is not None:
            text += continuation.stop
        choice = protocol.Choice(
            index=index,
            text=text.decode("utf-8", "replace"),
            logprobs=None,
            finish_reason=continuation.finish,
            stop_reason=None if continuation.stop is None else continuation.stop.decode(),
        )
        if asked.logprobs is not None:
            choice.logprobs = protocol.told(asked, continuation.ids, continuation.tops, self.token_text)
        if asked.return_token_ids:
            choice.token_ids, choice.prompt_token_ids = continuation.ids, ids
        return choice


async def _serve(engine: Engine, orders: list[Order]) -> list[Served]:
    return await asyncio.gather(*(asyncio.wrap_future(engine.submit(order)) for order in orders))
