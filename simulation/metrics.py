"""The response to `/metrics`: vLLM's metrics, and two that only a simulation can have."""

from simulation import MODEL
from simulation.batch import Batch
from weavegen_nano.counters import MetricsPage


def text(batch: Batch) -> str:
    """In the text format of Prometheus. Bring the batch up to the present before."""
    load, page = batch.load, MetricsPage(MODEL)
    page.add_engine(batch.counters, running=len(batch.running), waiting=len(batch.waiting), usage=batch.usage)
    page.add("sim:slots", "gauge", "Sequences that the SIMULATION runs at once.", load.slots)
    page.add(
        "sim:slot_seconds_total",
        "counter",
        "Integral over time of the sequences that the SIMULATION runs.",
        batch.slot_seconds,
    )
    return page.text()
