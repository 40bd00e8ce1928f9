"""Reads the metrics of a model server from its `/metrics`."""

from dataclasses import dataclass
from typing import Any

from weavegen.errors import ModelError
from weavegen.pool.http import Http
from weavegen.pool.routing import Load


@dataclass(frozen=True, kw_only=True)
class Metrics(Load):
    """The metrics of vLLM that the pool uses. Counters start with the server."""

    queries: int
    """Prompt tokens looked up in the prefix cache."""
    hits: int
    """Prompt tokens found there."""
    prompt: int
    """Prompt tokens."""
    generated: int
    """Generated tokens."""


NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:kv_cache_usage_perc": "cache",
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:prompt_tokens_total": "prompt",
    "vllm:generation_tokens_total": "generated",
    "vllm:num_preemptions_total": "preemptions",
}


def read(base_url: str, http: Http, seconds: float = 5.0) -> Metrics:
    """Read a server's metrics. Raises TransientError, and ModelError or Unfit if it does not have them, or no numbers.

    Values of several engines at one address are summed. Does not use prometheus_client: this is called every
    second, and that would parse all of vLLM's thousand lines.
    """
    url = f"{base_url.rstrip('/').removesuffix('/v1')}/metrics"
    found: dict[str, list[float]] = {}
    try:
        for line in http.get(url, seconds).decode(errors="replace").splitlines():
            name = NAMES.get(line[: min(at for at in (line.find("{"), line.find(" "), len(line)) if at >= 0)])
            if name is not None:
                found.setdefault(name, []).append(float(line.rpartition(" ")[2]))
        if missing := [name for name in NAMES.values() if name not in found]:
            raise ModelError(f"{url} lacks vLLM's metrics {', '.join(missing)}")
        values: dict[str, Any] = {name: int(sum(parts)) for name, parts in found.items()}  # none may be NaN
        values["cache"] = sum(found["cache"]) / len(found["cache"])
        return Metrics(**values)
    except (ValueError, OverflowError) as error:
        raise ModelError(f"{url} has metrics that can't be read: {error}") from None
