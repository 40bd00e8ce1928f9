"""The command top: shows everything that runs."""

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
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli import watch as watched
from weavegen.cli.app import Result, command, reading
from weavegen.cli.pool import server_values
from weavegen.database import Connection
from weavegen.monitoring.progress import JobNow, Paced, Rates, read_jobs, seconds_left
from weavegen.pool.survey import ServerRow, survey
from weavegen.services import pool_members
from weavegen.services.faults import Fault, faults
from weavegen.services.pool_members import Members
from weavegen.store import reports, workers
from weavegen.store import servers as model_servers
from weavegen.store.servers import ServerHealth
from weavegen.text import duration, number

SURVEY_SECONDS = 0.2
"""Time between surveys of the model servers. A survey takes a second if a server answers."""


@command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot, after measuring for a second.")] = False,
    json: bool = False,
) -> Result | None:
    """Show everything that runs: open jobs, model servers, queues with their workers, environments. Press q to quit.

    Without a terminal it prints one snapshot. docs/terminal.md defines the figures.

    Example: weavegen top
    """
    console = display.console()
    with watched.database_errors(), reading() as conn:
        reader = FleetReader(conn)
        if not (once or json) and console.is_interactive and sys.stdin.isatty():
            watch(reader, console)
            return None
        reader.read()  # the rates begin here
        surveyed = reader.servers()
        now = dataclasses.replace(reader.read(), surveyed=surveyed)
    return Result(now.values(), parts(now, None))


@dataclass(frozen=True)
class Fleet:
    """The fleet at a moment."""

    jobs: list[JobNow]
    queues: list[dict[str, Any]]
    """The open steps of each kind in a queue: columns of sql/open_steps.sql."""
    environments: dict[str, int]
    """Live environments by host."""
    members: Members
    """The pool's servers, and who lends them."""
    homes: dict[str, int]
    """Running traces by the URL of their home, a model server."""
    faults: list[Fault]
    """Without those of model servers, which are in `health`."""
    health: list[ServerHealth]
    """Servers at which requests failed."""
    workers: dict[str, int]
    """Number of workers that report themselves, by queue."""
    surveyed: list[ServerRow] | None = None
    """The servers; None: no answer yet."""

    def values(self) -> dict[str, Any]:
        """The figures for programs: rates per second, times in seconds, null where unknown."""
        jobs = [
            {"tokens_per_second": job.tokens, "blocks_per_second": job.blocks, "seconds_left": seconds_left(job.row)}
            | asdict(job.row)
            for job in self.jobs
        ]
        return {
            "jobs": jobs,
            "servers": server_values(self.surveyed or (), self.members, self.homes, self.health),
            "queues": self.queues,
            "workers": self.workers,
            "environments": self.environments,
            "faults": self.faults,
        }


class FleetReader:
    """Reads the database and the model servers."""

    def __init__(self, conn: Connection) -> None:
        self.conn, self.config = conn, configuration.load()
        self.rates = Rates(watched.WINDOW_SECONDS)
        self.members = Members({}, {})
        """The pool's servers as of the last `read`."""

    def read(self) -> Fleet:
        """What the database knows. It sums over the traces of open jobs, and reads only open steps."""
        jobs = read_jobs(self.conn, self.rates)
        with self.conn.transaction():
            queues = self.conn.execute(sql.load("monitoring/open_steps")).mappings()
            hosts = self.conn.execute(sql.load("monitoring/metrics/environments")).all()
            members, homes = pool_members.members(self.conn, self.config), reports.traces_by_server(self.conn)
            health = model_servers.health(self.conn, members.keys)
            serving = Counter(queue for row in workers.rows(self.conn) if not row.silent for queue in row.queues)
        self.members = members
        environments = {row.host: row.environments_open for row in hosts}
        found = [fault for fault in faults(self.conn, self.config) if fault.kind != "server"]
        return Fleet(jobs, queues, environments, members, homes, found, health, serving)

    def servers(self) -> list[ServerRow]:
        """What the model servers report about one second; the call takes that long."""
        return survey(self.members.keys)


def watch(reader: FleetReader, console: Console) -> None:
    """Redraw the picture until q or Ctrl-C is pressed."""
    state = Paced(reader.read, watched.PICTURE_SECONDS)
    state.get()
    surveyed: list[ServerRow] | None = None

    def ask_servers() -> None:
        nonlocal surveyed
        while True:
            surveyed = reader.servers()
            time.sleep(SURVEY_SECONDS)

    threading.Thread(target=ask_servers, daemon=True).start()
    with (
        keys() as pressed,
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            now = dataclasses.replace(state.get(), surveyed=surveyed)
            size = console.size
            live.update(Group(*parts(now, (size.width, size.height))), refresh=True)
            if watched.wait_for_picture(console, size, pressed):
                return


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits up to `seconds` for typed characters, and returns them without an echo."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)

    def pressed(seconds: float) -> str:
        if not select.select([stdin], [], [], seconds)[0]:
            return ""
        return os.read(stdin, 1024).decode(errors="replace") or "q"  # end of file: the terminal is gone

    try:
        tty.setcbreak(stdin)
        yield pressed
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def parts(now: Fleet, size: tuple[int, int] | None) -> Iterator[RenderableType]:
    """Head, jobs, servers and queues; as much of each as fits `size` (columns, lines), or all."""
    width, values = size[0] if size else None, now.values()
    asked = "the model servers are being asked" if now.surveyed is None else "no model server"
    tables: list[tuple[Sequence[Any], Callable[..., Table], str]] = [
        (values["jobs"], jobs_table, "no job is open"),
        (values["servers"], display.pool_table, asked),
        (queue_rows(now), queues_table, "no worker, no step"),
    ]
    shown = [len(rows) for rows, _, _ in tables]
    errors = [*map(display.fault_line, now.faults), *display.health_lines(now.health)]
    if size:
        errors = errors[: max(1, size[1] - 14)]
        for line in errors:
            line.truncate(size[0], overflow="ellipsis")
        # 11 lines: the head, and for each table an empty line, its own head and the line about more rows.
        while sum(shown) > max(3, size[1] - 11 - len(errors)):
            shown[shown.index(max(shown))] -= 1
    yield head(now)
    yield from errors
    for (rows, draw, nothing), lines in zip(tables, shown, strict=True):
        yield Text()
        yield draw(rows[:lines], width=width) if rows else Text(nothing, "dim")
        if lines < len(rows):
            yield Text(f"… and {len(rows) - lines:,} more", "dim")


def head(now: Fleet) -> Text:
    """The sums, in a line."""
    running = sum(job.row.running for job in now.jobs)
    hosts = ", ".join(f"{count:,} on {host}" for host, count in sorted(now.environments.items()))
    sums = (
        f"{len(now.jobs):,} open {'job' if len(now.jobs) == 1 else 'jobs'}",
        f"{running:,} running {'trace' if running == 1 else 'traces'}",
        f"environments: {hosts or 'none'}",
    )
    return Text(time.strftime("%H:%M:%S  "), "bold") + display.cell(", ".join(sums))


jobs_table = partial(
    display.table,
    fields={
        "job": "id",
        "name": "name",
        "agent": "agent",
        "user": "user",
        "state": lambda job: Text(job["state"], "" if job["state"] == "active" else "yellow"),
        "queued": "queued",
        "running": "running",
        "ended": "ended",
        "failed": lambda job: Text(number(job["failed"]), "red" if job["failed"] else ""),
        "cancelled": "cancelled",
        "tokens/s": lambda job: watched.rate_texts(job["tokens_per_second"], job["blocks_per_second"])[0],
        "blocks/min": lambda job: watched.rate_texts(job["tokens_per_second"], job["blocks_per_second"])[1],
        "done": lambda job: watched.whole_percent(job["progress"]),
        "left": lambda job: watched.UNKNOWN if job["seconds_left"] is None else duration(job["seconds_left"]),
    },
    short=("name", "agent", "user", "state"),
    dropped=("cancelled", "user", "agent", "state", "queued", "ended", "failed", "blocks/min", "name", "tokens/s"),
)
"""One line per open job, of `Fleet.values`."""


def queue_rows(now: Fleet) -> list[dict[str, Any]]:
    """The open steps with the number of their queue's workers; also the queues that have workers and no steps."""
    idle = now.workers.keys() - {row["queue"] for row in now.queues}
    rows = sorted([*now.queues, *({"queue": name} for name in idle)], key=itemgetter("queue"))
    return [row | {"workers": now.workers.get(row["queue"], 0)} for row in rows]


queues_table = partial(
    display.table,
    fields={
        "queue": "queue",
        "workers": lambda row: Text(number(row["workers"]), "" if row["workers"] else "red"),
        "steps": lambda row: row.get("kind"),
        "waiting": lambda row: row.get("waiting"),
        "leased": lambda row: row.get("leased"),
        "failed for now": lambda row: row.get("retrying"),
        "oldest": lambda row: "" if row.get("oldest") is None else duration(row["oldest"]),
    },
    short=("queue", "steps"),
    dropped=("failed for now", "workers", "oldest"),
)
"""One line per queue and kind of step, of `queue_rows`."""
