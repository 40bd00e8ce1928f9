"""The counters of a model server, and its `/metrics` page with vLLM 0.32's names."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass
class Counters:
    """vLLM's counters since the server's start. The `n` sequences of a request count separately."""

    queries: int = 0
    """Prompt tokens looked up in the prefix cache."""
    hits: int = 0
    """Prompt tokens found in the prefix cache."""
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Ended sequences by reason."""


class MetricsPage(Collector):
    """The metrics of one model, in the text format of Prometheus."""

    def __init__(self, model: str) -> None:
        self._labels = {"engine": "0", "model_name": model}
        self._metrics: list[Metric] = []

    def add(self, name: str, kind: str, about: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Add a value of a gauge or counter. Add values that differ only in `labels` one after another."""
        base = name.removesuffix("_total")
        if not self._metrics or self._metrics[-1].name != base:
            self._metrics.append(Metric(base, about, kind))
        self._metrics[-1].add_sample(name, {**self._labels, **(labels or {})}, value)

    def add_engine(self, count: Counters, *, running: int, waiting: int, usage: float) -> None:
        """Add the metrics that weavegen reads, and how sequences ended. `usage`: of the KV cache, 0 to 1."""
        self.add("vllm:num_requests_running", "gauge", "Sequences in the batch.", running)
        self.add("vllm:num_requests_waiting", "gauge", "Sequences that wait for a place in the batch.", waiting)
        self.add("vllm:kv_cache_usage_perc", "gauge", "KV cache usage, 0 to 1.", usage)
        self.add("vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the cache.", count.queries)
        self.add("vllm:prefix_cache_hits_total", "counter", "Tokens found in the cache.", count.hits)
        self.add("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", count.prompt_tokens)
        self.add("vllm:generation_tokens_total", "counter", "Generated tokens.", count.generation_tokens)
        self.add("vllm:num_preemptions_total", "counter", "Preempted sequences.", count.preemptions)
        for reason in REASONS:
            labels = {"finished_reason": reason}
            self.add("vllm:request_success_total", "counter", "Sequences by end.", count.finished[reason], labels)

    def collect(self) -> Iterable[Metric]:
        return self._metrics

    def text(self) -> str:
        return generate_latest(self).decode()
