"""The cost of a tick in a long trace and in a short one.

Real PostgreSQL, Redis, workers and sandboxes; a simulated model without latency.
Traces of both sizes take turns, so that other load of the machine affects both. While those of one size run, the
others are blocked, because this process holds the locks of their rows.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from bench.bars import Figure, table
from bench.engine import cpu
from bench.installation import home, installation
from weavegen import config
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.store.jobs import Order
from weavegen.store.session import database, single

SIZES = {"100 kB": 100_000, "10 MB": 10_000_000}
TRACES = 3
"""Number of traces of each size."""
ROUNDS = 4
TURN = 6.0
"""Seconds that the traces of one size run before those of the other size."""
PATIENCE = 180.0
"""Seconds within which a trace must grow to the smaller size."""
PAUSED = 2.0
"""A step whose own work took longer was blocked together with its trace, and is left out."""
BOOTSTRAP = '''"""The task: look around in the working directory and keep notes. There is no end to it."""

import os


def view_notes(self):
    if not os.path.exists("notes.txt"):
        return "There are no notes yet, and the working directory holds no other file either."
    with open("notes.txt") as notes:
        return notes.read()[-300:]


def action_begin(self):
    main = agent.subagent("main", None, "Look around and keep notes", {"notes": {"type": "string"}}, args.budget)
    main.add_observation_view("Notes", view_notes)
    return "begun"


self.add_action("Begin to keep notes", action_begin)
'''
"""A simulated agent never returns from this bootstrap."""

TICK_BEGINS = """
select t.blocks, t.bytes, k.number from traces t join ticks k on k.trace_id = t.id
where t.id = :trace and k.finished_at is null and k.first_block = t.blocks and t.blocks > 100
"""
"""A locked trace that is between two ticks, or whose new tick has recorded no block yet."""

# Copies of the finished ticks, in the same order and repeated, at the end of the trace. The open tick and its steps
# come after them. The journals of the copies are left out.
LENGTHEN = [
    """
create temporary table model on commit drop as
select index, row_number() over (order by index) - 1 as nth, octet_length(rendered) as size,
  tick - min(tick) over () as tick, tick as of
from blocks where trace_id = :trace and tick between 1 and :tick - 1
""",
    """
create temporary table copy on commit drop as
select index as from_index, of as from_tick, size,
  nth + :blocks + copies.n * (select count(*) from model) as index,
  tick + :tick + copies.n * (select 1 + max(tick) from model) as tick
from model, generate_series(0, (:bytes / (select sum(size) from model))::int) as copies(n)
""",
    """
update ticks set number = (select 1 + max(tick) from copy), first_block = (select 1 + max(index) from copy)
where trace_id = :trace and number = :tick
""",
    "update steps set tick = (select 1 + max(tick) from copy) where trace_id = :trace and tick = :tick",
    """
insert into ticks (trace_id, number, subagent, caller, deadline, first_block, clock, reward, finished_at)
select :trace, c.tick, k.subagent, k.caller, k.deadline, min(c.index), k.clock, k.reward, k.finished_at
from copy c join ticks k on k.trace_id = :trace and k.number = c.from_tick group by c.tick, k.id
""",
    """
insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, block_size,
  bm25_query, title, tick_start, working_directory, compiles, question, answer, probability, ran, exception, tags,
  score, reward, preference, candidate_id, executed_by)
select :trace, c.index, c.tick, subagent, type, body, rendered, timestamp, time_remaining, block_size,
  bm25_query, title, tick_start, working_directory, compiles, question, answer, probability, ran, exception, tags,
  score, reward, preference, candidate_id, executed_by
from copy c join blocks b on b.trace_id = :trace and b.index = c.from_index order by c.index
""",
    """
update traces set blocks = blocks + (select count(*) from copy), bytes = bytes + (select sum(size) from copy),
  ticks = ticks + (select count(distinct tick) from copy) where id = :trace
""",
]

OWN = """
select kind, count(*) n, avg(own) as own from (
  select kind, 1000 * (working_seconds - coalesce(model_seconds, 0) - coalesce(environment_seconds, 0)) as own
  from steps where trace_id = any(:traces) and finished_at >= :since
) s where own < 1000 * :paused group by kind order by kind
"""
"""Milliseconds of own work per step, by kind."""

FOUND = """
select count(distinct r.id) as queries, count(distinct r.id) filter (where h.block_id is not null) as with_blocks
from retrievals r left join retrieval_hits h on h.retrieval_id = r.id join steps s on s.id = r.step_id
where r.trace_id = any(:traces) and s.finished_at >= :since
"""


def run(console: Console) -> list[Figure]:
    with home() as folder, installation(folder, WEAVEGEN_MAX_ACTIVE=str(TRACES * len(SIZES))) as settings:
        return measure(console, settings)


def measure(console: Console, settings: config.Config) -> list[Figure]:
    orders = [Order("notes.py", BOOTSTRAP)] * (TRACES * len(SIZES))
    job = enqueueing.enqueue(traces=orders, seed=1, check=False)
    with database().connect() as conn:
        ids = conn.execute(Statement("select id from traces where job_id = :job order by id"), {"job": job}).scalars()
    traces = {name: list(ids[number :: len(SIZES)]) for number, name in enumerate(SIZES)}
    for trace in ids:
        wait_for(SIZES["100 kB"], [trace])
    for name, size in SIZES.items():
        for trace in traces[name]:
            lengthen(trace, size)
    with single().connect() as conn:
        conn.execute(Statement("vacuum analyze"))  # otherwise it would run during a turn
    for name in SIZES:  # fill caches, and let retrieval build its index
        with blocked([trace for other in SIZES if other != name for trace in traces[other]]):
            time.sleep(TURN)
    with single().connect() as conn:
        began = conn.execute(Statement("select clock_timestamp()")).scalar_one()
    spent: dict[str, Counter[str]] = {name: Counter() for name in SIZES}
    wall = dict.fromkeys(SIZES, 0.0)
    ticks: Counter[str] = Counter()
    first = {name: state(traces[name]) for name in SIZES}
    for _ in range(ROUNDS):
        for name in SIZES:
            with blocked([trace for other in SIZES if other != name for trace in traces[other]]):
                before, ticks_before, since = cpu(settings), state(traces[name])[0], time.monotonic()
                time.sleep(TURN)
                ticks[name] += state(traces[name])[0] - ticks_before
                wall[name] += time.monotonic() - since
                after = cpu(settings)
                after.subtract(before)
                spent[name].update(after)
    small, large = SIZES
    own: dict[str, dict[str, float]] = {name: {} for name in SIZES}
    done: dict[str, Counter[str]] = {name: Counter() for name in SIZES}
    for name in SIZES:
        last = state(traces[name])
        with database().connect() as conn:
            values = {"traces": traces[name], "since": began, "paused": PAUSED}
            for kind, n, average in conn.execute(Statement(OWN), values):
                own[name][kind] = float(average)
                done[name][kind] = n
            searches = conn.execute(Statement(FOUND), values).one()
        console.print(
            f"{name}: {first[name][1] / TRACES / 1e3:,.0f} to {last[1] / TRACES / 1e3:,.0f} kB and "
            f"{last[2] / TRACES:,.0f} blocks a trace at the end; {ticks[name]} ticks; "
            f"{searches.queries} queries, of which {searches.with_blocks} found blocks of the trace"
        )
    # By chance, ticks have different numbers of candidate rounds. So both sizes are measured by a tick with the
    # average number of steps of each kind over both sizes.
    steps = {kind: n / ticks.total() for kind, n in sorted((done[small] + done[large]).items())}
    worth = {name: done[name].total() / sum(steps.values()) for name in SIZES}
    cpu_of = {name: {part: 1000 * spent[name][part] / worth[name] for part in spent[name]} for name in SIZES}
    own_of = {name: {kind: n * own[name].get(kind, 0.0) for kind, n in steps.items()} for name in SIZES}
    rows: list[list[object]] = [
        *([f"CPU, {part}", *(cpu_of[name][part] for name in SIZES)] for part in sorted(spent[small])),
        ["CPU, all of these", *(sum(cpu_of[name].values()) for name in SIZES)],
        *([f"own work, {kind}", *(own_of[name][kind] for name in SIZES)] for kind in steps),
        ["own work, all steps", *(sum(own_of[name].values()) for name in SIZES)],
        [f"wall time, {TRACES} traces at once", *(1000 * wall[name] / worth[name] for name in SIZES)],
    ]
    for row in rows:
        row.append(f"{float(str(row[2])) / max(float(str(row[1])), 1e-9):.2f}")
    console.print(table("\nA tick, ms", ("", *SIZES, "ratio"), rows))
    return [
        Figure(
            f"{what} a tick at {large} of trace, of that at {small}",
            100 * sum(of[large].values()) / sum(of[small].values()),
            "%",
            at_most=120,
        )
        for what, of in (("CPU", cpu_of), ("own work", own_of))
    ]


def state(traces: list[int]) -> tuple[int, int, int]:
    """Sum of ticks, bytes and blocks of these traces. Raises RuntimeError if one has ended."""
    query = """
    select sum(ticks)::int, sum(bytes)::int, sum(blocks)::int, max(coalesce(failure, ended_because)) from traces
    where id = any(:traces)
    """
    with database().connect() as conn:
        *numbers, end = conn.execute(Statement(query), {"traces": traces}).one()
    if end is not None:
        raise RuntimeError(f"a trace has ended: {end}")
    return numbers[0], numbers[1], numbers[2]


def wait_for(size: int, traces: list[int]) -> None:
    """Wait until these traces have `size` bytes on average. Raises RuntimeError if it takes too long."""
    began = time.monotonic()
    while state(traces)[1] < size * len(traces):
        if time.monotonic() - began > PATIENCE:
            raise RuntimeError(f"the traces {traces} did not grow to {size:,} bytes within {PATIENCE:g} s")
        time.sleep(0.2)


def lengthen(trace: int, size: int) -> None:
    """Copy the trace's own blocks to its end, between two ticks, up to `size` bytes."""
    while True:
        with database().begin() as conn:
            conn.execute(Statement("select 1 from traces where id = :trace for update"), {"trace": trace})
            row = conn.execute(Statement(TICK_BEGINS), {"trace": trace}).one_or_none()
            if row is not None and row.bytes >= size:
                return
            if row is not None:
                values = {"trace": trace, "blocks": row.blocks, "tick": row.number, "bytes": size - row.bytes}
                for statement in LENGTHEN:
                    conn.execute(Statement(statement), values)
                return
            if state([trace])[1] >= size:
                return
        time.sleep(0.003)


@contextmanager
def blocked(traces: list[int]) -> Iterator[None]:
    """Keep these traces from advancing: results of their steps wait for the locks of their rows."""
    with database().begin() as conn:
        conn.execute(Statement("select 1 from traces where id = any(:traces) for update"), {"traces": traces})
        yield
