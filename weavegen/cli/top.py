"""The command that shows everything at a glance: top."""

import contextlib
import dataclasses
import os
import select
import sys
import termios
import threading
import time
import tty
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import sqlalchemy as sa
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli.app import Json, app, print_json, reading
from weavegen.cli.watch import UNKNOWN, WINDOW, told_if_the_database_goes
from weavegen.errors import UsageError
from weavegen.monitoring import display
from weavegen.monitoring.display import number
from weavegen.monitoring.progress import Paced, Rates, seconds_left
from weavegen.pool.survey import ServerRow, survey
from weavegen.store import reports
from weavegen.store.reports import JobRow

EVERY = 1.0
"""Seconds between two pictures."""
ROLL_CALL = 10.0
"""Seconds between two questions to the workers."""
T = TypeVar("T")


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture, which takes two seconds.")] = False,
    json: Json = False,
) -> None:
    """Show everything that runs: open jobs, model servers, queues and their workers, environments. q leaves it.

    Without a terminal it prints one picture. What the figures mean: docs/terminal.md.

    Example: weavegen top
    """
    console = display.console()
    with told_if_the_database_goes(), reading() as conn:
        look = Look(conn)
        if not (once or json) and console.is_interactive and sys.stdin.isatty():
            watch(look, console)
            return
        look.read()  # what the rates begin with
        servers, workers = look.servers(), look.workers()
        now = dataclasses.replace(look.read(), servers=servers, workers=workers)
    if json:
        print_json(as_json(now))
    else:
        console.print(Group(*parts(now, None)))


@dataclass(frozen=True)
class JobNow:
    """An open job."""

    row: JobRow
    blocks: float | None
    """A second, over the last minute; None: not looked at long enough."""
    tokens: float | None


@dataclass(frozen=True)
class QueueRow:
    """The open steps of a kind in a queue. Those of paused jobs wait for people, and are not among them."""

    queue: str
    kind: str
    waiting: int
    leased: int
    retrying: int
    """Of those that wait, such as failed for now."""
    oldest: float | None
    """Seconds that one has waited; None: none does."""


@dataclass(frozen=True)
class Now:
    """The fleet at a moment."""

    jobs: list[JobNow]
    queues: list[QueueRow]
    environments: dict[str, int]
    """Live processes of traces, by host."""
    homes: dict[str, int]
    """Running traces by the URL of their server."""
    owners: dict[str, str]
    servers: list[ServerRow] | None = None
    """None: not asked yet."""
    workers: dict[str, int] | None = None
    """Workers that answer, by queue; None: not asked yet, or the broker does not answer."""


class Look:
    """What is asked, and of whom."""

    def __init__(self, conn: sa.Connection) -> None:
        self.conn, self.config = conn, configuration.load()
        self.rates = Rates(WINDOW)
        self.keys: dict[str, str] = {}
        """Of the pool's servers, as the last reading found them: by URL what each is sent."""

    def read(self) -> Now:
        """What the database knows. Of jobs it reads all traces, of the rest what is open."""
        from weavegen.monitoring import metrics
        from weavegen.store import servers

        with self.conn.begin():
            rows = reports.jobs(self.conn, only_open=True)
            steps = self.conn.execute(sa.text(metrics.OPEN_STEPS)).all()
            hosts = self.conn.execute(sa.text(metrics.ENVIRONMENTS)).all()
            members, homes = servers.members(self.conn, self.config), reports.traces_by_server(self.conn)
        self.keys = dict(members.keys)
        moment = time.monotonic()
        return Now(
            jobs=[JobNow(row, *self.rates.now(moment, row)) for row in rows],
            queues=queues(steps),
            environments={row.host: row.environments for row in hosts},
            homes=homes,
            owners=dict(members.owners),
        )

    def servers(self) -> list[ServerRow]:
        """What the model servers say of the second that this takes."""
        return survey(list(self.keys), self.keys)

    def workers(self) -> dict[str, int] | None:
        """A message to each worker, and a second for the answers. None where the broker is away."""
        from celery import Celery
        from kombu.exceptions import OperationalError

        from weavegen.services import redis

        try:
            redis.check(self.config)
            with Celery(broker=redis.broker_url(self.config), set_as_current=False) as app:
                queues = app.control.inspect(timeout=1.0).active_queues() or {}
        except (UsageError, OperationalError, OSError):
            return None
        return Counter(queue["name"] for of_worker in queues.values() for queue in of_worker)


def queues(steps: Sequence[Any]) -> list[QueueRow]:
    """Rows of metrics.OPEN_STEPS by queue and kind, less what no worker takes (waits for other traces, people)."""
    found: dict[tuple[str, str], QueueRow] = {}
    for row in steps:
        if row.kind in ("work", "delegate", "await") or (row.paused and row.status == "ready"):
            continue
        known = found.setdefault((row.queue, row.kind), QueueRow(row.queue, row.kind, 0, 0, 0, None))
        if row.status == "running":
            known = dataclasses.replace(known, leased=known.leased + row.steps)
        else:
            known = dataclasses.replace(known, waiting=row.steps, retrying=row.retrying, oldest=row.oldest)
        found[row.queue, row.kind] = known
    return [found[key] for key in sorted(found)]


# ------------------------------------------------------------------------------------------------ on the screen


class Beside(Generic[T]):
    """What is asked again and again in a thread of its own. Nothing waits for it, not even the program's end."""

    def __init__(self, ask: Callable[[], T], every: float) -> None:
        self.ask, self.every = ask, every
        self.answer: T | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self.answer = self.ask()
            time.sleep(self.every)


def watch(look: Look, console: Console) -> None:
    """Until q is pressed, or Ctrl-C."""
    known = Paced(look.read, EVERY)
    known.get()
    servers, workers = Beside(look.servers, 0.0), Beside(look.workers, ROLL_CALL)
    with (
        keys() as pressed,
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            now, size = (
                dataclasses.replace(known.get(), servers=servers.answer, workers=workers.answer),
                console.size,
            )
            live.update(Group(*parts(now, (size.width, size.height))), refresh=True)
            until = time.monotonic() + EVERY
            while time.monotonic() < until and console.size == size:
                if "q" in pressed(0.1).lower():
                    return


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """A function that returns what was typed within so many seconds; nothing of it is shown."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def pressed(seconds: float) -> str:
        if not select.select([stdin], [], [], seconds)[0]:
            return ""
        return os.read(stdin, 1024).decode(errors="replace") or "q"  # the terminal is gone

    try:
        tty.setcbreak(stdin)
        yield pressed
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def parts(now: Now, size: tuple[int, int] | None) -> Iterator[RenderableType]:
    """Head, jobs, servers, queues: as much of each as has room in `size`, columns and lines; else all."""
    width = size[0] if size else None
    counts = [len(now.jobs), len(now.servers or ()), len(queue_rows(now))]
    shown = list(counts)
    if size:
        # The head, and of each table an empty line, its own head and what says that there is more.
        while sum(shown) > max(3, size[1] - 11):
            shown[shown.index(max(shown))] -= 1
    yield head(now)
    tables = (
        ("jobs", jobs_table(now.jobs[: shown[0]], width)),
        ("servers", display.pool_table((now.servers or [])[: shown[1]], now.homes, now.owners, width)),
        ("queues", queues_table(queue_rows(now)[: shown[2]], width)),
    )
    for (name, table), count, few in zip(tables, counts, shown, strict=True):
        yield Text()
        if count:
            yield table
            if few < count:
                yield Text(f"… and {count - few:,} more", "dim")
        elif name == "servers" and now.servers is None:
            yield Text("the model servers are being asked", "dim")
        else:
            yield Text(
                {"jobs": "no job is open", "servers": "no model server", "queues": "no worker, no step"}[name],
                "dim",
            )


def head(now: Now) -> Text:
    """The sums, in a line."""
    running = sum(job.row.running for job in now.jobs)
    alive = ", ".join(f"{count:,} on {host}" for host, count in sorted(now.environments.items()))
    told = (
        f"{len(now.jobs):,} open {'job' if len(now.jobs) == 1 else 'jobs'}",
        f"{running:,} running {'trace' if running == 1 else 'traces'}",
        f"environments: {alive or 'none'}",
    )
    return Text(time.strftime("%H:%M:%S  "), "bold") + display.cell(", ".join(told))


def jobs_table(jobs: Sequence[JobNow], width: int | None) -> Table:
    """One row an open job."""
    rows = [job.row for job in jobs]
    left = [seconds_left(row) for row in rows]
    columns: display.Columns = {
        "job": [str(row.id) for row in rows],
        "name": [display.cell(row.name) for row in rows],
        "agent": [display.cell(row.agent) for row in rows],
        "user": [display.cell(row.user) for row in rows],
        "state": [Text(row.state, "" if row.state == "active" else "yellow") for row in rows],
        "queued": [f"{row.queued:,}" for row in rows],
        "running": [f"{row.running:,}" for row in rows],
        "ended": [f"{row.ended:,}" for row in rows],
        "failed": [Text(f"{row.failed:,}", "red" if row.failed else "") for row in rows],
        "cancelled": [f"{row.cancelled:,}" for row in rows],
        "tokens/s": [number(job.tokens, unknown=UNKNOWN) for job in jobs],
        "blocks/min": [number(job.blocks and job.blocks * 60, "{:,.1f}", UNKNOWN) for job in jobs],
        "done": [f"{row.progress:.0%}" for row in rows],
        "left": [UNKNOWN if seconds is None else display.duration(seconds) for seconds in left],
    }
    dropped = (
        "cancelled",
        "user",
        "agent",
        "state",
        "queued",
        "ended",
        "failed",
        "blocks/min",
        "name",
        "tokens/s",
    )
    return display.table_of(columns, ("name", "agent", "user", "state"), dropped=dropped, width=width)


def queue_rows(now: Now) -> list[tuple[str, int | None, QueueRow | None]]:
    """Queue, its workers, its steps: of queues that have any of both. A queue's workers are told once."""
    workers = now.workers or {}
    names = sorted({*workers, *(row.queue for row in now.queues)})
    found: list[tuple[str, int | None, QueueRow | None]] = []
    for name in names:
        own: list[QueueRow | None] = [row for row in now.queues if row.queue == name]
        count = workers.get(name, 0) if now.workers is not None else None
        found += [(name, count, row) for row in own or [None]]
    return found


def queues_table(rows: Sequence[tuple[str, int | None, QueueRow | None]], width: int | None) -> Table:
    """One row a queue and kind of step."""
    steps = [row for _, _, row in rows]
    columns: display.Columns = {
        "queue": [display.cell(name) for name, _, _ in rows],
        "workers": [Text(number(count, unknown=UNKNOWN), "red" if count == 0 else "") for _, count, _ in rows],
        "steps": [display.cell(row.kind if row else "") for row in steps],
        "waiting": [f"{row.waiting:,}" if row else "" for row in steps],
        "leased": [f"{row.leased:,}" if row else "" for row in steps],
        "failed for now": [f"{row.retrying:,}" if row else "" for row in steps],
        "oldest": [display.duration(row.oldest) if row and row.oldest is not None else "" for row in steps],
    }
    dropped = ("failed for now", "workers", "oldest")
    return display.table_of(columns, ("queue", "steps"), dropped=dropped, width=width)


def as_json(now: Now) -> dict[str, Any]:
    """The figures, for programs; rates a second and times in seconds, null where they are not known."""
    jobs = [
        {"tokens_per_second": job.tokens, "blocks_per_second": job.blocks, "seconds_left": seconds_left(job.row)}
        | dataclasses.asdict(job.row)
        for job in now.jobs
    ]
    servers = [
        dataclasses.asdict(row) | {"owner": now.owners.get(row.url), "traces": now.homes.get(row.url, 0)}
        for row in now.servers or ()
    ]
    return {
        "jobs": jobs,
        "servers": servers,
        "queues": [dataclasses.asdict(row) for row in now.queues],
        "workers": now.workers,
        "environments": now.environments,
    }
