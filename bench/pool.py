"""Whether the pool keeps its servers full, and the cost of a server's death.

Real PostgreSQL, Redis, workers and sandboxes; simulated servers with the pace of a real one (`--like`, see
docs/simulation.md), so that the figures describe the pool and not a missing GPU. The use of slots is read from an
integral that the servers keep, not sampled.
"""

import statistics
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from bench.long_trace import BOOTSTRAP
from simulation.process import Process
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.store.jobs import Order
from weavegen.store.session import database

LIKE = "h100-70b-tp4"
SLOTS = 64
TRACES = 64
"""Slots of a server."""
FIRST = 60.0
"""Seconds after the start of the last trace that are not counted."""
COUNTED = 90.0
AWAY = 30.0
"""Seconds for which one of four servers is dead."""
PATIENCE = 600.0
"""Seconds within which all traces must start."""


class Sim(Process):
    """A simulated server of `SLOTS` slots, and its metrics."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, name, "--like", LIKE, "--slots", str(SLOTS))

    def generated(self) -> float:
        """Tokens generated since its start; 0 while it is dead."""
        return self.read("vllm:generation_tokens_total")[0] if self.alive else 0.0

    def read(self, *names: str) -> list[float]:
        """Values of its metrics."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        values = {line.partition("{")[0].partition(" ")[0]: line.rpartition(" ")[2] for line in lines if line[0] != "#"}
        return [float(values[name]) for name in names]


def run(console: Console) -> list[Figure]:
    """Measure one server, then four, then four of which one dies."""
    with fleet_of(1) as sims:
        alone = saturation(console, sims)
    with fleet_of(4) as sims:
        four = saturation(console, sims)
        kept = death(console, sims)
    mean = statistics.fmean(four)
    return [
        Figure("slots in use, 1 server of 64, 64 traces", 100 * alone[0], "%", at_least=95),
        Figure("slots in use, 4 servers of 64, 256 traces", 100 * mean, "%", at_least=90),
        Figure(
            "of these, the one furthest from the mean", 100 * max(abs(use / mean - 1) for use in four), "%", at_most=10
        ),
        *kept,
    ]


@contextmanager
def fleet_of(servers: int) -> Iterator[list[Sim]]:
    """An installation of its own with `servers` simulated servers, in which all traces have started."""
    with home() as folder:
        sims: list[Sim] = []
        try:
            sims.extend(Sim(folder, str(number)) for number in range(servers))
            urls = ",".join(sim.url for sim in sims)
            with installation(folder, OPENAI_BASE_URL=urls, WEAVEGEN_MAX_ACTIVE=str(TRACES * servers)):
                start(TRACES * servers)
                yield sims
        finally:
            for sim in sims:
                sim.kill()


def start(traces: int) -> None:
    """Enqueue traces that never end by themselves, and wait until each of them has sent a request.

    More traces would get no slot for a while, because old traces go first.
    """
    enqueueing.enqueue(traces=[Order("notes.py", BOOTSTRAP)] * traces, seed=1, settings={}, check=False)
    begun = Statement("select count(distinct trace_id) from steps where kind = 'sample'")
    deadline = time.monotonic() + PATIENCE
    while True:
        with database().connect() as conn:
            if conn.execute(begun).scalar_one() == traces:
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not all of {traces} traces began within {PATIENCE:.0f} s")
        time.sleep(1)


def saturation(console: Console, sims: Sequence[Sim]) -> list[float]:
    """Mean share of each server's slots in use, after the first minute."""
    time.sleep(FIRST)
    names = ["sim:slot_seconds_total", "vllm:generation_tokens_total"]
    names += ["vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"]
    before, began = [sim.read(*names) for sim in sims], time.monotonic()
    waiting: list[list[float]] = [[] for _ in sims]
    while time.monotonic() < began + COUNTED:
        for seen, sim in zip(waiting, sims, strict=True):
            seen += sim.read("vllm:num_requests_waiting")
        time.sleep(1)
    after, passed = [sim.read(*names) for sim in sims], time.monotonic() - began
    spans = [[now - then for now, then in zip(*pair, strict=True)] for pair in zip(after, before, strict=True)]
    uses = [span[0] / (passed * SLOTS) for span in spans]
    rows = [
        [number, 100 * use, statistics.fmean(seen), span[1] / passed, 100 * span[3] / span[2]]
        for number, (use, seen, span) in enumerate(zip(uses, waiting, spans, strict=True), 1)
    ]
    columns = ("server", "slots in use, %", "waiting, mean", "tokens/s", "prefix hits, %")
    console.print(table(f"\n{len(sims)} x {SLOTS} slots like {LIKE}, {TRACES * len(sims)} traces", columns, rows))
    return uses


def death(console: Console, sims: Sequence[Sim]) -> list[Figure]:
    """Kill one server, restart it later, and measure the effect on traces and pace.

    Meanwhile contexts grow and every server slows down, so the restarted one is compared with the others.
    """

    def pace(seconds: float) -> tuple[float, list[float]]:
        """Tokens per second that traces got, with rejected candidates, and those that each living server generated."""
        began = time.monotonic()
        got, made = sampled(), [sim.generated() for sim in sims]
        time.sleep(seconds)
        passed = time.monotonic() - began
        rates = [(now - then) / passed for now, then in zip((sim.generated() for sim in sims), made, strict=True)]
        return (sampled() - got) / passed, rates

    spans = {"before": pace(60)}
    sims[0].kill()
    spans["dead, first half"] = pace(AWAY / 2)
    spans["dead, second half"] = pace(AWAY / 2)
    sims[0].start()
    spans["back, first 30 s"] = pace(30)
    spans["back, the next 60 s"] = pace(60)
    with database().connect() as conn:
        failed = conn.execute(Statement("select count(*) from traces where status = 'failed'")).scalar_one()
    before = spans["before"][0]
    rows = [
        [name, got, f"{got / before:.2f}", made[0], statistics.fmean(made[1:])] for name, (got, made) in spans.items()
    ]
    columns = ("", "tokens/s of traces", "of before", "of that server", "of each other one")
    console.print(table(f"\nOne server of four killed for {AWAY:.0f} s", columns, rows))
    halves = [spans[f"dead, {half} half"][0] for half in ("first", "second")]
    returned, others = spans["back, the next 60 s"][1][0], spans["back, the next 60 s"][1][1:]
    return [
        Figure("traces that failed as a server died", float(failed), "", at_most=0),
        Figure("pace with three servers of four", 100 * statistics.fmean(halves) / before, "%"),
        Figure("of this, once they know its traces", 100 * halves[1] / before, "%", at_least=65),
        Figure("after 30 s, its pace by the others'", 100 * returned / statistics.fmean(others), "%", at_least=95),
    ]


def sampled() -> float:
    """Tokens that all traces have sampled so far."""
    with database().connect() as conn:
        return float(conn.execute(Statement("select sum(sampled_tokens) from traces")).scalar_one())
