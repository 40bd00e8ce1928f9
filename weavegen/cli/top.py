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

import sqlalchemy as sa
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen import sql
from weavegen.cli import display
from weavegen.cli.app import Result, command, reading
from weavegen.cli.pool import server_values, with_failures
from weavegen.cli.watch import (
    PICTURE_SECONDS,
    UNKNOWN,
    WINDOW_SECONDS,
    database_errors,
    rate_texts,
    wait_for_picture,
)
from weavegen.monitoring.progress import JobNow, Paced, Rates, read_jobs, seconds_left
from weavegen.pool.survey import ServerRow, survey
from weavegen.services import pool_members
from weavegen.services.faults import Fault, faults
from weavegen.store import reports, workers
from weavegen.store import servers as model_servers
from weavegen.store.servers import ServerHealth
from weavegen.text import duration, number

SURVEY_SECONDS = 0.2
"""Between two surveys of the model servers, each of which takes a second where one answers."""


@command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print one picture, after two seconds of measuring.")] = False,
    json: bool = False,
) -> Result | None:
    """Show everything that runs: open jobs, model servers, queues with their workers, environments. q ends it.

    Without a terminal it prints one picture. docs/terminal.md defines the figures.

    Example: weavegen top
    """
    console = display.console()
    with database_errors(), reading() as conn:
        reader = FleetReader(conn)
        if not (once or json) and console.is_interactive and sys.stdin.isatty():
            watch(reader, console)
            return None
        reader.read()  # the rates begin here
        servers = reader.servers()
        now = dataclasses.replace(reader.read(), servers=servers)
    return Result(as_json(now), parts(now, None))


@dataclass(frozen=True)
class Fleet:
    """The fleet at a moment."""

    jobs: list[JobNow]
    queues: list[dict[str, Any]]
    """The open steps of each kind in a queue: columns of sql/open_steps.sql."""
    environments: dict[str, int]
    """Live environments by host."""
    homes: dict[str, int]
    """Running traces by the URL of their home, a model server."""
    owners: dict[str, str]
    """Who lends a server, by its URL."""
    faults: list[Fault]
    """Without those of model servers, which are in `health`."""
    health: list[ServerHealth]
    """Servers at which requests failed."""
    workers: dict[str, int]
    """Number of workers that report themselves, by queue."""
    servers: list[ServerRow] | None = None
    """None: no answer yet."""


class FleetReader:
    """Reads the database and the model servers."""

    def __init__(self, conn: sa.Connection) -> None:
        self.conn, self.config = conn, configuration.load()
        self.rates = Rates(WINDOW_SECONDS)
        self.keys: dict[str, str] = {}
        """API keys of the pool's servers by URL, as of the last `read`."""

    def read(self) -> Fleet:
        """What the database knows. It sums over the traces of open jobs, and reads only open steps."""
        jobs = read_jobs(self.conn, self.rates)
        with self.conn.begin():
            queues = [dict(row) for row in self.conn.execute(sql.load("monitoring/open_steps")).mappings()]
            hosts = self.conn.execute(sql.load("monitoring/metrics/environments")).all()
            members, homes = pool_members.members(self.conn, self.config), reports.traces_by_server(self.conn)
            health = model_servers.health(self.conn, members.keys)
            serving = Counter(queue for row in workers.rows(self.conn) if not row.silent for queue in row.queues)
        self.keys = dict(members.keys)
        environments = {row.host: row.environments_open for row in hosts}
        found = [fault for fault in faults(self.conn, self.config) if fault.kind != "server"]
        return Fleet(jobs, queues, environments, homes, dict(members.owners), found, health, serving)

    def servers(self) -> list[ServerRow]:
        """What the model servers report about the second that this takes."""
        return survey(self.keys)


# ------------------------------------------------------------------------------------------------- in a terminal


def watch(reader: FleetReader, console: Console) -> None:
    """Draw pictures until q or Ctrl-C is pressed."""
    state = Paced(reader.read, PICTURE_SECONDS)
    state.get()
    servers: list[ServerRow] | None = None

    def ask_servers() -> None:
        nonlocal servers
        while True:
            servers = reader.servers()
            time.sleep(SURVEY_SECONDS)

    threading.Thread(target=ask_servers, daemon=True).start()
    with (
        keys() as pressed,
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        while True:
            now = dataclasses.replace(state.get(), servers=servers)
            size = console.size
            live.update(Group(*parts(now, (size.width, size.height))), refresh=True)
            if wait_for_picture(console, size, pressed):
                return


@contextlib.contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits so many seconds for typed characters, and returns them without an echo."""
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
    width = size[0] if size else None
    servers = with_failures(now.servers or (), now.health)
    draw_servers = partial(display.pool_table, traces=now.homes, owners=now.owners)
    asked = "the model servers are being asked" if now.servers is None else "no model server"
    tables: list[tuple[Sequence[Any], Callable[..., Table], str]] = [
        (now.jobs, jobs_table, "no job is open"),
        (servers, draw_servers, asked),
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


def jobs_table(jobs: Sequence[JobNow], width: int | None) -> Table:
    """One line per open job."""
    rows = [job.row for job in jobs]
    left = [seconds_left(row) for row in rows]
    columns: display.Columns = {
        "job": [str(row.id) for row in rows],
        "name": [display.cell(row.name) for row in rows],
        "agent": [display.cell(row.agent) for row in rows],
        "user": [display.cell(row.user) for row in rows],
        "state": [Text(row.state, "" if row.state == "active" else "yellow") for row in rows],
        **{name: [f"{getattr(row, name):,}" for row in rows] for name in ("queued", "running", "ended")},
        "failed": [Text(f"{row.failed:,}", "red" if row.failed else "") for row in rows],
        "cancelled": [f"{row.cancelled:,}" for row in rows],
        "tokens/s": [rate_texts(job)[0] for job in jobs],
        "blocks/min": [rate_texts(job)[1] for job in jobs],
        "done": [f"{row.progress:.0%}" for row in rows],
        "left": [UNKNOWN if seconds is None else duration(seconds) for seconds in left],
    }
    short = ("name", "agent", "user", "state")
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
    return display.fitted_table(columns, short, dropped=dropped, width=width)


def queue_rows(now: Fleet) -> list[dict[str, Any]]:
    """The open steps with the number of their queue's workers; also the queues that have workers and no steps."""
    idle = now.workers.keys() - {row["queue"] for row in now.queues}
    rows = sorted([*now.queues, *({"queue": name} for name in idle)], key=itemgetter("queue"))
    return [row | {"workers": now.workers.get(row["queue"], 0)} for row in rows]


def queues_table(rows: Sequence[dict[str, Any]], width: int | None) -> Table:
    """One line per queue and kind of step."""
    counts = [row["workers"] for row in rows]
    waits = [row.get("oldest") for row in rows]
    columns: display.Columns = {
        "queue": [display.cell(row["queue"]) for row in rows],
        "workers": [Text(number(count), "red" if count == 0 else "") for count in counts],
        "steps": [display.cell(row.get("kind")) for row in rows],
        "waiting": [number(row.get("waiting")) for row in rows],
        "leased": [number(row.get("leased")) for row in rows],
        "failed for now": [number(row.get("retrying")) for row in rows],
        "oldest": ["" if seconds is None else duration(seconds) for seconds in waits],
    }
    dropped = ("failed for now", "workers", "oldest")
    return display.fitted_table(columns, ("queue", "steps"), dropped=dropped, width=width)


def as_json(now: Fleet) -> dict[str, Any]:
    """The figures for programs: rates per second, times in seconds, null where unknown."""
    jobs = [
        {"tokens_per_second": job.tokens, "blocks_per_second": job.blocks, "seconds_left": seconds_left(job.row)}
        | asdict(job.row)
        for job in now.jobs
    ]
    return {
        "jobs": jobs,
        "servers": server_values(with_failures(now.servers or (), now.health), now.owners, now.homes, now.health),
        "queues": now.queues,
        "workers": now.workers,
        "environments": now.environments,
        "faults": now.faults,
    }
