"""One run of the chaos suite: start traces, inject faults by a seeded schedule, wait for all traces to end, audit."""

import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from simulation.process import Process
from tests.chaos.faults import ALONE, FAULTS, SKEW, World
from tests.chaos.model import Relay
from tests.support import ROOT
from tests.support.installation import Installation, installed

BOOTSTRAPS = ROOT / "tests" / "bootstraps" / "chaos"
LEASE = 4.0
"""Lease in seconds: short, so that ten minutes contain many recoveries."""
PAUSE = 4.0
"""Mean seconds between two faults."""
PATIENCE = 120.0
"""Seconds within which every trace must continue after a fault."""
ENDING = 240.0
"""Seconds within which all traces must end once everything works again."""


@dataclass
class Injected:
    """A fault, and the time that the traces took to continue after its end."""

    name: str
    lasted: float = 0.0
    recovered: float | None = None


@dataclass
class Report:
    """The results of a run."""

    faults: list[Injected] = field(default_factory=list)
    traces: list[tuple[str, str, int]] = field(default_factory=list)
    """(bootstrap, how the trace ended, number of traces)."""
    figures: list[str] = field(default_factory=list)
    audit: str = ""
    broken: list[str] = field(default_factory=list)
    """Findings that must not occur."""


def chaos(seed: int, minutes: float, traces: int, agent: str = "weave", search: str = "cascade") -> int:
    """Run the suite and print a report. Returns the exit code."""
    report = Report()
    with relayed() as relays:
        environ = {
            "OPENAI_BASE_URL": ",".join(relay.url for relay in relays),
            "WEAVEGEN_LEASE": str(LEASE),
            "WEAVEGEN_MAX_ACTIVE": str(traces),
        }
        with installed(**environ) as place:
            world = World(place, relays, random.Random(seed))
            world.sql(SKEW)
            job = enqueue(place, seed, traces, search) if agent == "weave" else converse(place, seed, agent)
            torment(world, report, 60 * minutes)
            finish(world, report, job, agent)
            judge(world, report)
            audit(place, report)
    show(report, seed, minutes)
    return 1 if report.broken else 0


@contextmanager
def relayed() -> Iterator[list[Relay]]:
    """A pool of two addresses of one server. Each is a relay that can fail by itself.

    The server is the SIMULATED one without latency, so that the processors are free for what is tested.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = Process(Path(folder), "model")
        relays = [Relay(server.url) for _ in range(2)]
        try:
            yield relays
        finally:
            for relay in relays:
                relay.close()
            server.kill()


def enqueue(place: Installation, seed: int, traces: int, search: str) -> int:
    """Enqueue equally many traces of each kind. Only a game ends by itself."""
    rows = place.home / "rows.jsonl"
    files = [ROOT / "bootstraps" / "tictactoe.py", *sorted(BOOTSTRAPS.glob("*.py"))]
    share = [traces // len(files) + (number < traces % len(files)) for number in range(len(files))]
    rows.write_text(
        "".join(json.dumps({"bootstrap": str(file), "n": n}) + "\n" for file, n in zip(files, share, strict=True) if n)
    )
    # A small window, so that blocks leave it and can be retrieved.
    small = ("--set", "window=16", "--set", "window_kept=8", "--set", "time_budget=100000")
    return int(place.json("enqueue", "--from", rows, "--seed", str(seed), "--search", search, *small)["job"])


TASKS: dict[str, list[str | dict[str, Any]]] = {
    "react": ["Count something.", "Write a list of words.", "Find out what is there."],
    "research": ["What are tokens kept for?", "What is a release?", "How is a fork made?"],
    "funsearch": [
        json.loads((ROOT / "bootstraps" / "tasks" / name).read_text()) | {"generations": 3, "candidates": 2}
        for name in ("bin_packing.json", "cap_set.json")
    ],
    "toolsmith": [{"task": "Say how many vowels the word weaving has."}, {"task": "Add up 1 to 100."}],
}
"""Tasks of conversing agents. Their traces are short, so that others are always waiting."""
WAITING = 5000
"""Number of traces of such a job. Most of them never start."""


def converse(place: Installation, seed: int, agent: str) -> int:
    """Enqueue a job of a conversing agent."""
    rows = place.home / "rows.jsonl"
    tasks = TASKS[agent]
    rows.write_text("".join(json.dumps({"task": task, "n": WAITING // len(tasks)}) + "\n" for task in tasks))
    documents = ("--documents", ROOT / "docs") if agent == "research" else ()
    done = place.json("enqueue", "--agent", agent, "--from", rows, "--seed", str(seed), *documents)
    return int(done["job"])


def torment(world: World, report: Report, seconds: float) -> None:
    """Inject faults, sometimes two at once, each kind equally often. Measure how soon traces continue."""
    deadline = time.monotonic() + seconds
    bag: list[str] = []
    while time.monotonic() < deadline and not report.broken:
        time.sleep(world.random.expovariate(1 / PAUSE))
        if len(bag) < 2:
            bag += world.random.sample(list(FAULTS), len(FAULTS))
        together = [Injected(bag.pop(0))]
        if together[0].name not in ALONE and bag[0] not in ALONE and world.random.random() < 0.3:
            together.append(Injected(bag.pop(0)))
        report.faults += together
        began = time.monotonic()
        for name in inject(world, [fault.name for fault in together]):
            next(fault for fault in together if fault.name == name).lasted = time.monotonic() - began
        world.bring_up()
        over = time.monotonic()
        if not all_go_on(world):
            names = " and ".join(fault.name for fault in together)
            report.broken.append(f"after {names}: not every trace continued within {PATIENCE:.0f} s")
            return
        for fault in together:
            fault.recovered = time.monotonic() - over


def inject(world: World, names: list[str]) -> Iterator[str]:
    """Start several faults at once, and revert each when its time is over. Yields its name then."""
    faults = [FAULTS[name](world) for name in names]
    ends = sorted((next(fault), number) for number, fault in enumerate(faults))
    began = time.monotonic()
    for seconds, number in ends:
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        next(faults[number], None)
        yield names[number]


def all_go_on(world: World) -> bool:
    """Wait until every running trace has finished a step."""
    before, deadline = steps_done(world), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        world.bring_up()  # a damaged service may die later
        now = steps_done(world)
        if all(now[trace] > before.get(trace, 0) for trace in now):
            return True
        time.sleep(0.1)
    return False


def steps_done(world: World) -> dict[int, int]:
    """Number of finished steps of each running trace, without traces that wait for other traces or people."""
    rows = world.sql(
        "select t.id, count(s.id) from traces t left join steps s on s.trace_id = t.id and s.status = 'done' "
        "where t.status = 'running' and not exists (select from steps w where w.trace_id = t.id "
        "and w.status = 'running' and w.kind in ('delegate', 'await')) group by t.id"
    )
    return {int(trace): int(done) for trace, done in rows}


def finish(world: World, report: Report, job: int, agent: str) -> None:
    """Let every trace end after its tick, or let running traces end by themselves. Wait for all of them."""
    command = ("retune", str(job), "ticks=1") if agent == "weave" else ("drain", str(job))
    done = world.installation.cli(*command)
    if done.returncode != 0:
        report.broken.append(f"`weavegen {command[0]}` failed: {done.stderr.strip()}")
    deadline = time.monotonic() + ENDING
    while world.sql("select from traces where status = 'running' limit 1") and time.monotonic() < deadline:
        time.sleep(0.5)


TRACES = """
select left(b.name, 14),
  t.status || ': ' || coalesce(t.ended_because, t.failure_kind || ', ' || t.failure, ''), count(*)
from traces t join bootstraps b on b.id = t.bootstrap_id group by 1, 2 order by 1, 2
"""
FIGURES = """
select count(*) || ' blocks' from blocks union all
select count(*) || ' steps done' from steps where status = 'done' union all
select count(*) || ' steps taken more than once' from steps where claims > 1 union all
select count(*) || ' candidates tried' from trials union all
select count(*) || ' ticks restarted' from events where kind = 'tick restarted' union all
select count(*) || ' environments rebuilt' from events where kind = 'environment rebuilt' union all
select count(*) || ' of them with other results, of ' || b.name from events e
join traces t on t.id = e.trace_id join bootstraps b on b.id = t.bootstrap_id
where e.kind = 'environment rebuilt' and e.detail not like '%all came out as before%' group by b.name
"""
LEDGERS = """
select t.id, e.tick, e.title, coalesce(e.error, e.value::text) from evaluations e
join traces t on t.id = e.trace_id join bootstraps b on b.id = t.bootstrap_id
where b.name = 'ledger.py' and e.scope = 'task' and e.value is distinct from 'true' order by 1, 2
"""


def judge(world: World, report: Report) -> None:
    """Checks in addition to the audit: how the traces ended, and the records of traces that keep some themselves."""
    report.traces = [(str(name), str(how), int(n)) for name, how, n in world.sql(TRACES)]
    failed = [one for one in report.traces if not one[1].startswith(("ended:", "queued:"))]
    report.broken += [f"{n} traces of {name} {how}" for name, how, n in failed]
    report.broken += [f"trace {id}, tick {tick}: {title} {value}" for id, tick, title, value in world.sql(LEDGERS)]
    report.figures = [str(line) for [line] in world.sql(FIGURES)]


def audit(place: Installation, report: Report) -> None:
    """Run `weavegen audit`."""
    done = place.cli("audit", "--grace", "5")
    report.audit = done.stdout.strip()
    if done.returncode != 0:
        report.broken.append(f"`weavegen audit` exited with {done.returncode}: {done.stderr.strip()}")


def show(report: Report, seed: int, minutes: float) -> None:
    console = Console(highlight=False, width=120)
    table = Table(title=f"Seed {seed}, {minutes:g} minutes: faults, and seconds until every trace continued", box=None)
    for name in ("fault", "times", "lasted, mean", "continued after, median", "at worst"):
        table.add_column(name, justify="left" if name == "fault" else "right")
    for name in FAULTS:
        those = [fault for fault in report.faults if fault.name == name]
        if those:
            after = [fault.recovered for fault in those if fault.recovered is not None]
            table.add_row(
                name,
                str(len(those)),
                f"{statistics.fmean(fault.lasted for fault in those):.1f}",
                f"{statistics.median(after):.1f}" if after else "never",
                f"{max(after):.1f}" if len(after) == len(those) else "never",
            )
    console.print(table)
    console.print(f"{len(report.faults)} faults; {', '.join(report.figures)}")
    for name, how, n in report.traces:
        console.print(f"{n:4} {name:14} {how}", markup=False)
    console.print(report.audit, markup=False)
    for line in report.broken:
        console.print(f"BROKEN: {line}", style="bold red", markup=False)
    if not report.broken:
        console.print("nothing was lost")
