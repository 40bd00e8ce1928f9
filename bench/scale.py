"""Many active traces for an hour: does anything grow? SIMULATED model servers, real workers, boxes and database.

BENCH_ACTIVE traces run at a time (1,000); new ones start as others end. Other workers are started beside the three of
`up`, 20 processes in all. BENCH_MINUTES (60) are measured; the traces start in the first quarter, and after the second
quarter nothing but the corpus may grow. The pictures are bench/results/scale-*.svg.
"""

import contextlib
import itertools
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import psutil  # type: ignore[import-untyped]
from rich.console import Console

from bench import engine
from bench.bars import Figure, table
from bench.installation import home, installation
from simulation.process import Process
from weavegen import config
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.sandbox import environment, watch
from weavegen.services import fleet, processes
from weavegen.store.session import database
from weavegen.viewer.plot import Series, svg

ACTIVE = int(os.environ.get("BENCH_ACTIVE", "1000"))
MINUTES = float(os.environ.get("BENCH_MINUTES", "60"))
SERVERS = 4
WORKERS = {"model": 7, "lint": 6, "execute": 7}
"""Processes of each kind, 20 in all; `up` starts one of each."""
SOME_BOXES = 50
"""Boxes whose memory is read. Reading that of thousands of processes would take a core half a minute."""
EVERY = min(60.0, 60 * MINUTES / 8)
"""Seconds between two samples."""
RESULTS = Path(__file__).parent / "results"
STATE = """
select coalesce(sum(blocks), 0)::float as blocks, count(*) filter (where status = 'running') as running,
  count(*) filter (where status = 'ended') as ended, count(*) filter (where status = 'failed') as failed,
  pg_database_size(current_database()) / 1e6::float as megabytes
from traces
"""
WAITING = """
select split_part(queue, '.', 1) as queue, count(*) filter (where status = 'ready') as waiting,
  coalesce(extract(epoch from now() - min(ready_at) filter (where status = 'ready')), 0)::float as oldest
from steps where status in ('ready', 'running') and queue is not null group by 1
"""
"""By queue; those of single hosts (execute.HOST) are counted together."""
SERVICES = ("postgres", "redis", "beat")


@dataclass(frozen=True)
class Sample:
    """The installation at a moment. Memory is the proportional set size, in MB."""

    minutes: float
    state: Any
    """A row of STATE."""
    waiting: dict[str, int]
    """By queue: steps that no worker has claimed."""
    oldest: float
    """Seconds since the first of them became ready."""
    cpu: float
    """Seconds that workers, database and broker have used."""
    memory: dict[str, float]
    """By kind of worker, and by service."""
    boxes: float

    @property
    def workers(self) -> float:
        return sum(self.memory[kind] for kind in WORKERS)

    @property
    def all_waiting(self) -> int:
        return sum(self.waiting.values())


def run(console: Console) -> list[Figure]:
    with home() as folder, contextlib.ExitStack() as stack:
        servers = [Process(folder, f"sim{number}") for number in range(SERVERS)]
        for server in servers:
            stack.callback(server.kill)
        environ = {"OPENAI_BASE_URL": ",".join(server.url for server in servers), "WEAVEGEN_MAX_ACTIVE": str(ACTIVE)}
        settings = stack.enter_context(installation(folder / "home", **environ))
        more = stack.enter_context(more_workers(settings))
        samples = measure(settings, more, console)
        audit = subprocess.run(
            [sys.executable, "-m", "weavegen.cli", "audit"], check=False, capture_output=True, text=True
        )
        console.print(audit.stdout.strip().splitlines()[-1], highlight=False)
        return report(console, samples, audit.returncode)


@contextlib.contextmanager
def more_workers(settings: config.Config) -> Iterator[dict[str, list[psutil.Process]]]:
    """Workers beside those of `up`, by kind, as a user starts them."""
    commands = fleet.worker_commands(settings, model=128, lint=1, execute=16)
    environ = fleet.child_environment(settings)
    started: dict[str, list[psutil.Process]] = {kind: [] for kind in WORKERS}
    try:
        for kind, count in WORKERS.items():
            for number in range(1, count):
                command = [
                    f"{kind}{number}@bench" if word == fleet.node(settings, kind) else word for word in commands[kind]
                ]
                with (settings.logs / f"{kind}{number}.log").open("ab") as log:
                    options = {"env": environ, "stdout": log, "stderr": log, "start_new_session": True}
                    started[kind].append(psutil.Popen(command, **options))
        yield started
    finally:
        processes_of_all = [process for of_kind in started.values() for process in of_kind]
        for process in processes_of_all:
            process.terminate()
        psutil.wait_procs(processes_of_all, timeout=60)


def measure(settings: config.Config, more: dict[str, list[psutil.Process]], console: Console) -> list[Sample]:
    """Run traces of sums, and sample the installation until the time is up."""
    orders = enqueueing.orders([enqueueing.BOOTSTRAPS / "sums.py"], 10 * ACTIVE)
    enqueueing.enqueue(traces=orders, seed=1, settings={"ticks": 6, "time_budget": 3600}, check=False)
    samples: list[Sample] = []
    began = time.monotonic()
    while not samples or samples[-1].minutes < MINUTES:
        time.sleep(max(0.0, began + EVERY * len(samples) - time.monotonic()))
        samples.append(sample(settings, more, (time.monotonic() - began) / 60))
        last = samples[-1]
        console.print(
            f"{last.minutes:.0f} min: {last.state.running} traces run, {last.state.ended} have ended, "
            f"{last.state.blocks:,.0f} blocks, {last.all_waiting} steps wait, workers {last.workers:.0f} MB"
        )
    return samples


def state_and_steps() -> tuple[Any, list[Any]]:
    """The row of STATE and the rows of WAITING."""
    with database().connect() as conn:
        return conn.execute(Statement(STATE)).one(), list(conn.execute(Statement(WAITING)))


def sample(settings: config.Config, more: dict[str, list[psutil.Process]], minutes: float) -> Sample:
    """What the database, the processes and the boxes say now."""
    state, queues = state_and_steps()
    services = processes.registered(settings)
    boxes = [one.handle.pid for one in environment.running(settings)]
    children = watch.by_parent(watch.process_table())
    some = boxes[:: max(1, len(boxes) // SOME_BOXES)]
    pids = {name: [services[name].pid, *(one.pid for one in more.get(name, ()))] for name in (*WORKERS, *SERVICES)}
    return Sample(
        minutes, state, {row.queue: row.waiting for row in queues}, max((row.oldest for row in queues), default=0.0),
        cpu=sum(engine.cpu(settings).values()) + sum(map(engine.seconds, itertools.chain(*more.values()))),
        memory={name: megabytes(roots, children, set(boxes)) for name, roots in pids.items()},
        boxes=megabytes(some, children) * len(boxes) / max(1, len(some)),
    )  # fmt: skip


def megabytes(roots: Sequence[int], children: dict[int, list[int]], besides: Set[int] = frozenset()) -> float:
    """The proportional set size of processes and their children, without those in `besides` and theirs."""
    total, open_pids = 0, list(roots)
    while open_pids:
        if (pid := open_pids.pop()) in besides:
            continue
        open_pids += children.get(pid, ())
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss: +(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total += int(found[1]) if found else 0
    return total / 1000


def report(console: Console, samples: Sequence[Sample], audit: int) -> list[Figure]:
    """The quarters of the time in a table, pictures of all samples, and what may not grow."""
    size = max(1, (len(samples) - 1) // 4)
    quarters = [samples[at * size : (at + 1) * size + 1] for at in range(4)]
    rows: dict[str, list[float]] = {
        "blocks a second": [rate(part) for part in quarters],
        "processor time a block, ms": [1000 * spent(part) for part in quarters],
        "memory of 20 workers, MB": [mean(one.workers for one in part) for part in quarters],
        "memory of PostgreSQL, MB": [mean(one.memory["postgres"] for one in part) for part in quarters],
        "memory of the boxes, MB": [mean(one.boxes for one in part) for part in quarters],
        "active traces": [mean(one.state.running for one in part) for part in quarters],
        "steps that wait for a worker": [mean(one.all_waiting for one in part) for part in quarters],
        "the oldest of them, s": [mean(one.oldest for one in part) for part in quarters],
        "database, MB": [float(part[-1].state.megabytes) for part in quarters],
    }
    columns = ("", "first quarter", "second", "third", "last")
    title = f"\n{ACTIVE:,} active traces, 20 workers, {SERVERS} simulated servers, {samples[-1].minutes:.0f} minutes"
    console.print(table(title, columns, [[name, *values] for name, values in rows.items()]))
    plots: list[tuple[str, str, Sequence[Mapping[str, float]]]] = [
        ("memory", "MB", [one.memory for one in samples]),
        ("boxes", "MB", [{"all boxes": one.boxes} for one in samples]),
        ("queues", "steps that wait for a worker", [one.waiting for one in samples]),
        ("database", "MB", [{"size": float(one.state.megabytes)} for one in samples]),
    ]
    for name, unit, shown in plots:
        keys = sorted({key for values in shown for key in values})
        series = [
            Series(key, [(one.minutes, values.get(key, 0.0)) for one, values in zip(samples, shown, strict=True)])
            for key in keys
        ]
        (RESULTS / f"scale-{name}.svg").write_text(svg(name.capitalize(), "minutes", unit, series))
    by_minute = Series("blocks/s", [(b.minutes, rate([a, b])) for a, b in itertools.pairwise(samples)])
    (RESULTS / "scale-blocks.svg").write_text(svg("Blocks", "minutes", "blocks a second", [by_minute]))
    growth = {name: ratio(values[-1], values[1]) for name, values in rows.items()}
    return [
        Figure(
            "memory of the workers, last quarter beside the second",
            growth["memory of 20 workers, MB"],
            "x",
            at_most=1.1,
        ),
        Figure("processor time a block, likewise", growth["processor time a block, ms"], "x", at_most=1.1),
        Figure("steps that wait, likewise", growth["steps that wait for a worker"], "x", at_most=1.1),
        Figure("traces that failed", samples[-1].state.failed, "", at_most=0),
        Figure("exit code of the audit", audit, "", at_most=0),
    ]


def ratio(last: float, before: float) -> float:
    """How much something has grown; infinite if there was none of it before."""
    return last / before if before else math.inf if last else 1.0


def rate(part: Sequence[Sample]) -> float:
    """Blocks a second between the first and the last of these samples."""
    first, last = part[0], part[-1]
    return float(last.state.blocks - first.state.blocks) / (60 * (last.minutes - first.minutes))


def spent(part: Sequence[Sample]) -> float:
    """CPU seconds a block between the first and the last of these samples."""
    first, last = part[0], part[-1]
    return (last.cpu - first.cpu) / max(1.0, float(last.state.blocks - first.state.blocks))
