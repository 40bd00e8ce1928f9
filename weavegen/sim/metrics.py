"""The answer to `/metrics`: vLLM 0.32's names, and a few that only a simulation can have."""

from weavegen.sim import MODEL
from weavegen.sim.batch import Batch
from weavegen.sim.cache import BLOCK

REASONS = ("stop", "length", "abort", "error", "repetition")
_LABELS = f'engine="0",model_name="{MODEL}"'


def text(batch: Batch) -> str:
    """In the text format of Prometheus. Bring the batch up to the present before."""
    count, load = batch.counters, batch.load
    config = {
        "block_size": BLOCK,
        "enable_prefix_caching": load.prefix_cache,
        "kv_cache_size_tokens": load.cache_tokens,
        "num_gpu_blocks": load.cache_tokens // BLOCK,
    }
    configured = ",".join(f'{name}="{value}"' for name, value in config.items())
    lines = [
        *_one("vllm:num_requests_running", "gauge", "Sequences in the batch.", len(batch.running)),
        *_one("vllm:num_requests_waiting", "gauge", "Sequences that wait for their turn.", len(batch.waiting)),
        *_one("vllm:kv_cache_usage_perc", "gauge", "Part of the KV cache in use, 0 to 1.", batch.usage),
        *_one("vllm:prefix_cache_queries_total", "counter", "Tokens looked for in the cache.", count.queries),
        *_one("vllm:prefix_cache_hits_total", "counter", "Tokens found there.", count.hits),
        *_one("vllm:prompt_tokens_total", "counter", "Tokens of prompts.", count.prompt_tokens),
        *_one("vllm:prompt_tokens_cached_total", "counter", "Those that were in the cache.", count.hits),
        *_one("vllm:generation_tokens_total", "counter", "Tokens generated.", count.generation_tokens),
        *_one("vllm:num_preemptions_total", "counter", "Sequences put back in the queue.", count.preemptions),
        *_head("vllm:request_success_total", "counter", "Sequences by how they ended."),
        *(
            f'vllm:request_success_total{{finished_reason="{reason}",{_LABELS}}} {float(count.finished[reason])}'
            for reason in REASONS
        ),
        *_head("vllm:cache_config_info", "gauge", "The cache's settings."),
        f"vllm:cache_config_info{{{configured},{_LABELS}}} 1.0",
        *_one("sim:slots", "gauge", "Sequences that the SIMULATION runs at once.", load.slots),
        *_one(
            "sim:slot_seconds_total",
            "counter",
            "Integral over time of the sequences that the SIMULATION runs.",
            count.slot_seconds,
        ),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _one(name: str, kind: str, about: str, value: float) -> list[str]:
    return [*_head(name, kind, about), f"{name}{{{_LABELS}}} {float(value)}"]
