"""The engine under load: real PostgreSQL, Redis, workers and sandboxes; a simulated model without latency.

Measures orchestration: everything except model and environment.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from weavegen import config
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.sandbox.children import family
from weavegen.services import processes
from weavegen.services.model_server import SIM
from weavegen.store.session import database

ACTIVE = 32
TRACES = 96
"""Enough traces that all slots are taken for most of the run."""

BY_KIND = """
select kind, count(*) n,
  1000 * avg(extract(epoch from claimed_at - ready_at)) as hop,
  1000 * avg(model_seconds) as model, 1000 * avg(environment_seconds) as environment,
  1000 * avg(working_seconds - coalesce(model_seconds, 0) - coalesce(environment_seconds, 0)) as own
from steps s join traces t on t.id = s.trace_id where t.job_id = :job group by kind order by kind
"""
"""Milliseconds per step, by kind."""

PER_BLOCK = """
with b as (
  select b.trace_id, b.type, b.created_at as at,
    lag(b.created_at) over (partition by trace_id order by index) as before
  from blocks b join traces t on t.id = b.trace_id where t.job_id = :job
), d as (
  select b.type, 1000 * greatest(0, extract(epoch from at - before) - (
    select coalesce(sum(model_seconds), 0) + coalesce(sum(environment_seconds), 0) from steps s
    where s.trace_id = b.trace_id and s.finished_at > b.before and s.finished_at <= b.at + interval '1 ms'
  )) as ms from b where before is not null
)
select type, count(*) n, percentile_cont(0.5) within group (order by ms) as median from d
group by grouping sets ((type), ()) order by type nulls last
"""
"""Milliseconds from the commit of one block to that of the next, without model and environment."""

SUSTAINED = """
with period as (
  select min(started_at) + interval '3 seconds' as first, max(started_at) as last from traces where job_id = :job
)
select count(*) / extract(epoch from max(last) - max(first)) from blocks b
join traces t on t.id = b.trace_id, period where t.job_id = :job and b.created_at between first and last
"""
"""Blocks per second while all slots are taken, that is until the last trace was started."""


def run(console: Console) -> list[Figure]:
    with home() as folder, installation(folder, WEAVEGEN_MAX_ACTIVE=str(ACTIVE)) as settings:
        return measure(console, settings)


def measure(console: Console, settings: config.Config) -> list[Figure]:
    play(1)  # so that every process has imported, prepared and cached what it needs
    alone = play(1)
    before, began = cpu(settings), time.monotonic()
    loaded = play(TRACES)
    wall = time.monotonic() - began
    spent = cpu(settings)
    spent.subtract(before)
    with database().connect() as conn:
        rate = float(conn.execute(Statement(SUSTAINED), {"job": loaded}).scalar_one())
        blocks = conn.execute(
            Statement("select sum(blocks)::float from traces where job_id = :job"), {"job": loaded}
        ).scalar_one()
        by_type = [tuple(row) for row in conn.execute(Statement(PER_BLOCK), {"job": alone})]
        for name, job in (("one trace alone", alone), (f"{ACTIVE} traces at once", loaded)):
            rows = [
                [row.kind, row.n, *(float(value or 0) for value in row[2:])]
                for row in conn.execute(Statement(BY_KIND), {"job": job})
            ]
            columns = ("step", "n", "hop", "model", "environment", "own work")
            console.print(table(f"\nWhere a step's time goes, ms, {name}", columns, rows))
    rows = [[type or "all", n, median] for type, n, median in by_type]
    console.print(table("\nOrchestration per block, ms, one trace alone", ("block", "n", "median"), rows))
    rows = [[name, seconds, 1000 * seconds / blocks] for name, seconds in spent.most_common()]
    rows.append(["all of these", sum(spent.values()), 1000 * sum(spent.values()) / blocks])
    own = sum(used for name, used in spent.items() if name != SIM)
    title = f"\nCPU, {ACTIVE} traces at once, {wall:.0f} s on {os.cpu_count()} cores"
    console.print(table(title, ("process", "s", "ms a block"), rows))
    return [
        Figure(f"blocks a second, {ACTIVE} traces at once", rate, "/s", at_least=40),
        Figure("orchestration a block, median, one trace alone", by_type[-1][2], "ms", at_most=25),
        Figure("processor time a block, without the simulation", 1000 * own / blocks, "ms", at_most=18),
        Figure("enqueue 10,000 traces", enqueue_many(), "s", at_most=10),
    ]


def play(n: int) -> int:
    """Have `n` games played to the end. Returns the job's id."""
    orders = enqueueing.orders([enqueueing.BOOTSTRAPS / "tictactoe.py"], n)
    job = enqueueing.enqueue(traces=orders, seed=1, settings={"ticks": 12}, check=False)
    query = Statement("select 1 from traces where job_id = :job and status in ('queued', 'running') limit 1")
    while True:
        time.sleep(0.25)
        with database().connect() as conn:
            if conn.execute(query, {"job": job}).first() is None:
                return job


def enqueue_many() -> float:
    """Seconds that `weavegen enqueue` takes for 10,000 traces, from start to exit."""
    began = time.monotonic()
    command = [str(Path(sys.executable).parent / "weavegen"), "enqueue", str(enqueueing.BOOTSTRAPS / "tictactoe.py")]
    subprocess.run([*command, "-n", "10000"], check=True, capture_output=True)
    return time.monotonic() - began


def cpu(settings: config.Config) -> Counter[str]:
    """CPU seconds that each part and its children have used so far."""
    services = processes.registered(settings)
    return Counter({name: seconds(psutil.Process(service.pid)) for name, service in services.items()})


def seconds(process: psutil.Process) -> float:
    """CPU seconds that a process and its children have used so far."""
    total = 0.0
    for one in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
