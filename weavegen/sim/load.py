"""How the simulation behaves under load: continuous batching in outline, faults on demand, vLLM's counters."""

import asyncio
import random
from collections import OrderedDict
from dataclasses import asdict, dataclass, field

from weavegen.errors import UsageError
from weavegen.sim import MODEL, tokenizer


@dataclass(frozen=True)
class Load:
    """The pace of the simulated GPU. By default everything takes no time at all."""

    slots: int = 256
    """Sequences that run at once; the others wait."""
    prefill: float = 0.0
    """Prompt tokens a second that are not in the prefix cache; 0: no time."""
    inter_token: float = 0.0
    """Milliseconds per generated token; 0: no time."""
    prefix_cache: bool = True
    cache_tokens: int = 2_000_000
    """Size of the KV cache; also what `kv_cache_usage_perc` is a part of."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.cache_tokens < 1 or self.prefill < 0 or self.inter_token < 0:
            raise UsageError("the load model takes at least one slot and no negative times")


@dataclass
class Faults:
    """Rates, 0 to 1, at which a completion request is spoiled; one draw decides between them."""

    http_500: float = 0.0
    http_429: float = 0.0
    hang: float = 0.0
    """Never answered, until the client hangs up."""
    reset: float = 0.0
    """The connection is cut without an answer."""
    garbage: float = 0.0
    """200, with a body that is no JSON."""

    def check(self) -> "Faults":
        """Itself. Raises UsageError if the rates are no probabilities."""
        rates = asdict(self).values()
        if any(not 0 <= rate <= 1 for rate in rates) or sum(rates) > 1:
            raise UsageError("fault rates must lie between 0 and 1, their sum too")
        return self

    def draw(self, chance: random.Random) -> str | None:
        """The fault that strikes now, if any."""
        at = chance.random()
        for name, rate in asdict(self).items():
            if at < rate:
                return str(name)
            at -= rate
        return None


class PrefixCache:
    """Which beginnings of prompts are in the KV cache: a chain of hashes over the tokenizer's chunks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: OrderedDict[int, int] = OrderedDict()
        self.tokens = 0

    def add(self, prompt: str) -> tuple[int, int]:
        """(tokens of the prompt, tokens of it that were cached); the prompt is cached from now on."""
        total = hits = 0
        chain, cached = 0, True
        for chunk in tokenizer.chunks(prompt):
            count = tokenizer.count_chunk(chunk)
            chain = hash((chain, chunk))
            total += count
            if chain in self._held:
                self._held.move_to_end(chain)
                hits += count if cached else 0
                continue
            cached = False
            self._held[chain] = count
            self.tokens += count
        while self.tokens > self._capacity:
            self.tokens -= self._held.popitem(last=False)[1]
        return total, hits


@dataclass
class Metrics:
    """vLLM's counters and gauges, of which the pool reads some."""

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    queries: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    stopped: int = 0
    length: int = 0
    aborted: int = 0

    def text(self) -> str:
        """The answer to `/metrics`."""
        counter, gauge = "counter", "gauge"
        label = f'engine="0",model_name="{MODEL}"'
        rows = [
            ("num_requests_running", gauge, "Number of requests in model execution batches.", self.running),
            ("num_requests_waiting", gauge, "Number of requests waiting to be processed.", self.waiting),
            ("kv_cache_usage_perc", gauge, "KV-cache usage. 1 means 100 percent usage.", self.kv_usage),
            ("prefix_cache_queries_total", counter, "Prefix cache queries, in tokens.", self.queries),
            ("prefix_cache_hits_total", counter, "Prefix cache hits, in tokens.", self.hits),
            ("prompt_tokens_total", counter, "Prefill tokens processed.", self.prompt_tokens),
            ("prompt_tokens_cached_total", counter, "Cached prompt tokens.", self.hits),
            ("generation_tokens_total", counter, "Generation tokens processed.", self.generation_tokens),
            ("num_preemptions_total", counter, "Preemptions.", 0),
        ]
        lines = []
        for name, kind, about, value in rows:
            lines += [f"# HELP vllm:{name} {about}", f"# TYPE vllm:{name} {kind}"]
            lines.append(f"vllm:{name}{{{label}}} {float(value)}")
        lines.append("# HELP vllm:request_success_total Count of successfully processed requests.")
        lines.append("# TYPE vllm:request_success_total counter")
        for reason, value in (("stop", self.stopped), ("length", self.length), ("abort", self.aborted)):
            labels = f'engine="0",finished_reason="{reason}",model_name="{MODEL}"'
            lines.append(f"vllm:request_success_total{{{labels}}} {float(value)}")
        return "\n".join(lines) + "\n"


@dataclass
class Engine:
    """The simulated GPU: takes the time that the load model says, and counts."""

    load: Load
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.load.cache_tokens)
        self._slots = asyncio.Semaphore(self.load.slots)

    def prompt(self, text: str) -> tuple[int, int]:
        """(tokens, cached ones) of a prompt that arrives."""
        total, hits = self.cache.add(text)
        if not self.load.prefix_cache:
            hits = 0
        self.metrics.queries += total
        self.metrics.hits += hits
        self.metrics.prompt_tokens += total
        return total, hits

    async def work(self, sequences: list[tuple[int, int]]) -> None:
        """Wait as long as (prompt tokens to compute, tokens to generate) of each sequence take."""
        if not self.load.prefill and not self.load.inter_token:
            return
        await asyncio.gather(*(self._sequence(*sequence) for sequence in sequences))

    async def _sequence(self, compute: int, generate: int) -> None:
        seconds = generate * self.load.inter_token / 1000
        if self.load.prefill:
            seconds += compute / self.load.prefill
        self.metrics.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.metrics.waiting -= 1
        self.metrics.running += 1
        # What the prefix cache holds can be freed at once: only running sequences count as used.
        self.metrics.kv_usage = min(1.0, self.metrics.running / self.load.slots)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.metrics.running -= 1
            self.metrics.kv_usage = min(1.0, self.metrics.running / self.load.slots)
            self._slots.release()
