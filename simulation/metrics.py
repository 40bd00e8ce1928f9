"""The response to `/metrics`: vLLM's metrics, and two that only a simulation can have."""

from simulation import MODEL
from simulation.batch import Batch
from simulation.cache import BLOCK
from weavegen.nano.counters import Figures


def text(batch: Batch) -> str:
    """The metrics in Prometheus' text format. Call `batch.advance(now)` before."""
    load, figures = batch.load, Figures(MODEL)
    figures.of_engine(
        batch.counters,
        running=len(batch.running),
        waiting=len(batch.waiting),
        usage=batch.usage,
        cache={
            "block_size": BLOCK,
            "enable_prefix_caching": load.prefix_cache,
            "kv_cache_size_tokens": load.cache_tokens,
            "num_gpu_blocks": load.cache_tokens // BLOCK,
        },
    )
    figures.one("sim:slots", "gauge", "Sequences that the SIMULATION runs at once.", load.slots)
    figures.one(
        "sim:slot_seconds_total",
        "counter",
        "Integral over time of the sequences that the SIMULATION runs.",
        batch.slot_seconds,
    )
    return figures.text()
