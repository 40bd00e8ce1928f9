"""What a model server counts, and the answer to `/metrics`: vLLM 0.32's names."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

REASONS = ("stop", "length", "abort", "error", "repetition")


@dataclass
class Counters:
    """What vLLM counts, of all sequences since the start; those of a request's `n` count each for itself."""

    queries: int = 0
    """Prompt tokens looked for in the prefix cache."""
    hits: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    """Sequences by how they ended."""


class Figures:
    """Figures of one model, in the text format of Prometheus."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{model}"'
        self._lines: list[str] = []

    def one(self, name: str, kind: str, about: str, value: float) -> None:
        """Add a figure."""
        self._head(name, kind, about)
        self._lines.append(f"{name}{{{self._labels}}} {float(value)}")

    def of_engine(
        self, count: Counters, *, running: int, waiting: int, usage: float, cache: Mapping[str, object]
    ) -> None:
        """Add all that vLLM tells and weavegen reads. `usage`: of the KV cache, 0 to 1; `cache`: its settings."""
        self.one("vllm:num_requests_running", "gauge", "Sequences in the batch.", running)
        self.one("vllm:num_requests_waiting", "gauge", "Sequences that wait for their turn.", waiting)
        self.one("vllm:kv_cache_usage_perc", "gauge", "Part of the KV cache in use, 0 to 1.", usage)
        self.one("vllm:prefix_cache_queries_total", "counter", "Tokens looked for in the cache.", count.queries)
        self.one("vllm:prefix_cache_hits_total", "counter", "Tokens found there.", count.hits)
        self.one("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", count.prompt_tokens)
        self.one("vllm:prompt_tokens_cached_total", "counter", "Those that were in the cache.", count.hits)
        self.one("vllm:generation_tokens_total", "counter", "Tokens generated.", count.generation_tokens)
        self.one("vllm:num_preemptions_total", "counter", "Sequences put back in the queue.", count.preemptions)
        self._head("vllm:request_success_total", "counter", "Sequences by how they ended.")
        for reason in REASONS:
            labels = f'finished_reason="{reason}",{self._labels}'
            self._lines.append(f"vllm:request_success_total{{{labels}}} {float(count.finished[reason])}")
        self._head("vllm:cache_config_info", "gauge", "The cache's settings.")
        configured = ",".join(f'{name}="{value}"' for name, value in sorted(cache.items()))
        self._lines.append(f"vllm:cache_config_info{{{configured},{self._labels}}} 1.0")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _head(self, name: str, kind: str, about: str) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
