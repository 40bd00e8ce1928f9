"""The command watch: shows a job as it runs. `run` uses it, too."""

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import psycopg
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli import display
from weavegen.cli.app import command, print_json, reading
from weavegen.cli.complete import job_numbers
from weavegen.database import Connection
from weavegen.errors import WeavegenError
from weavegen.monitoring.progress import JobNow, Paced, Rates, read_jobs, seconds_left
from weavegen.services.faults import Fault, faults
from weavegen.store import reports
from weavegen.store.reports import JobRow, Troubles
from weavegen.text import bytes_text, duration, number

FAULTS_SECONDS = 2.0
"""Time between checks for faults."""
PICTURE_SECONDS = 1.0
"""Time between pictures."""
LINE_SECONDS = 10.0
"""Maximum time between lines, if there is no terminal."""
WINDOW_SECONDS = 60.0
"""The rates of a running job are averages over this time."""
MAX_TRACES_WITH_LINES = 16
"""In a job of at most this many traces, the end of each gets a line."""
MAX_LISTED_TRACES = 64
"""Traces in the final table, if there is no terminal."""
MAX_NAME_CHARS = 60
UNKNOWN = "—"


@command()
def watch(
    job: Annotated[int | None, typer.Argument(help="Default: the latest job.", autocompletion=job_numbers)] = None,
    json: bool = False,
) -> None:
    """Show a job as it runs: its traces, rates, errors, and estimated end. The exit code is 1 if a trace failed.

    It ends with the job. Ctrl-C ends it earlier, and the job goes on. docs/terminal.md defines the figures.

    Example: weavegen watch 3
    """
    with reading() as conn:
        job_id = job if job is not None else reports.latest(conn)
        reports.jobs(conn, job_id)
    raise typer.Exit(follow(job_id, json))


def follow(job_id: int, json: bool = False) -> int:
    """As `show`; Ctrl-C leaves, and the job goes on."""
    try:
        return show(job_id, json)
    except KeyboardInterrupt:
        name = display.command()
        sys.stderr.write(f"job {job_id} goes on: `{name} watch {job_id}` shows it, `{name} cancel {job_id}` ends it\n")
        return 130


def show(job_id: int, json: bool = False, *, stderr: bool = False) -> int:
    """Show a job until it is over: as a picture, or in lines where there is no terminal. Returns the exit code.

    With `json` its traces are printed as JSON in the end. With `json` or `stderr` the rest goes to standard error.
    """
    console = display.console(stderr=json or stderr)
    with database_errors(), reading() as conn:
        reader = JobReader(conn, job_id)
        (draw if console.is_interactive else print_lines)(reader, console)
        if json:
            print_json(reader.traces(None))
        return 1 if reader.now().job.row.failed else 0


@contextlib.contextmanager
def database_errors() -> Iterator[None]:
    """Turns the loss of the database into a WeavegenError, for commands that run for hours."""
    try:
        yield
    except psycopg.OperationalError as error:
        reason = " ".join(str(error).split())[:300]
        raise WeavegenError(f"the database no longer answers ({reason}): `{display.command()} up` starts it") from None


@dataclass(frozen=True)
class WatchedJob:
    """A job at a moment, with its troubles and the faults of the installation."""

    job: JobNow
    troubles: Troubles
    faults: list[Fault]
    """Empty once the job is over."""


class JobReader:
    """Reads a job repeatedly, less often if that takes long."""

    def __init__(self, conn: Connection, job_id: int) -> None:
        self.conn, self.job_id = conn, job_id
        self.rates = Rates(WINDOW_SECONDS)
        self.job = Paced(self._job, PICTURE_SECONDS)
        self.troubles = Paced(lambda: reports.troubles(conn, self.job.get().row), PICTURE_SECONDS)
        self.faults = Paced(lambda: faults(conn, configuration.load()), FAULTS_SECONDS)

    def now(self) -> WatchedJob:
        job, troubles = self.job.get(), self.troubles.get()
        return WatchedJob(job, troubles, self.faults.get() if job.row.open else [])

    def traces(self, limit: int | None, status: str | None = None) -> Sequence[Any]:
        with self.conn.transaction():
            return reports.traces(self.conn, self.job_id, limit, status=status)

    def _job(self) -> JobNow:
        [job] = read_jobs(self.conn, self.rates, self.job_id)
        if not job.row.open:
            self.troubles.due = 0.0  # the last picture shows the final figures
        return job


def draw(reader: JobReader, console: Console) -> None:
    """Redraw the picture until the job is over."""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            now, size = reader.now(), console.size
            live.update(picture(now, reader, console), refresh=True)
            if not now.job.row.open:
                return
            wait_for_picture(console, size)


def wait_for_picture(console: Console, size: object, pressed: Callable[[float], str | None] = time.sleep) -> bool:
    """Wait until the next picture is due, or the window has another size. Returns whether q was pressed."""
    until = time.monotonic() + PICTURE_SECONDS
    while time.monotonic() < until and console.size == size:
        if "q" in (pressed(0.1) or "").lower():
            return True
    return False


def picture(now: WatchedJob, reader: JobReader, console: Console) -> RenderableType:
    """As many traces as the window has room for, the bar, and the figures."""
    job = now.job.row
    tail = figures(now, console)
    options = console.options.update(width=console.width, height=None)
    room = console.height - len(console.render_lines(tail, options)) - 2  # the table's head, the cursor's line
    parts: list[RenderableType] = []
    if job.traces <= room:
        parts = [display.traces_table(reader.traces(None), console.width)]
    elif room > 2:
        rows = reader.traces(room - 1, "running" if job.open else "failed")
        more = Text(f"… and {job.traces - len(rows):,} more", "dim")
        parts = [display.traces_table(rows, console.width), more] if rows else [more]
    return Group(*parts, tail)


def figures(now: WatchedJob, console: Console) -> RenderableType:
    """The figures of a job of any size."""
    job = now.job.row
    bar = Table.grid(padding=(0, 1))
    width = max(10, min(60, console.width - 8))
    bar.add_row(ProgressBar(total=1.0, completed=job.progress, width=width), whole_percent(job.progress).rjust(4))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(f"job {job.id}", over_line(job))
    table.add_row("speed", speed_line(now))
    table.add_row("errors", errors_line(now))
    table.add_row("left", left_line(now))
    tokens = f"{job.sampled_tokens:,} tokens sampled in {duration(job.seconds)}"
    rest = f"{tokens}; {number(job.candidates_per_block, '{:.1f}', UNKNOWN)} candidates per block"
    table.add_row("written", Text(f"{job.blocks:,} blocks, {bytes_text(job.bytes)}, {rest}"))
    return Group(bar, table, *map(display.fault_line, now.faults))


def over_line(job: JobRow) -> Text:
    counts = (f"{count:,} {name}" for name, count in (("running", job.running), ("queued", job.queued)) if count)
    agent = f", {job.agent}" if job.agent != "weave" else ""
    parts = [f"{job.traces - job.open:,} of {job.traces:,} over", *counts, display.state_of(job)]
    name = display.cell(job.name)
    name.truncate(MAX_NAME_CHARS, overflow="ellipsis")
    return name + Text(f"{agent}: {', '.join(filter(None, parts))}")


def rate_texts(tokens: float | None, blocks: float | None) -> tuple[str, str]:
    """Tokens per second, and blocks per minute; both are given per second."""
    per_minute = None if blocks is None else blocks * 60
    return number(tokens, unknown=UNKNOWN), number(per_minute, "{:,.1f}", UNKNOWN)


def whole_percent(share: float | None) -> str:
    """The share in percent, rounded down: 100% is all."""
    return number(None if share is None else int(100 * share + 1e-9), "{}%", UNKNOWN)


def speed_line(now: WatchedJob) -> Text:
    tokens, blocks = rate_texts(now.job.tokens, now.job.blocks)
    kept = whole_percent(now.troubles.kept_share)
    return Text(f"{tokens} tokens/s, {blocks} blocks/min, {kept} of the tokens kept")


def errors_line(now: WatchedJob) -> Text:
    def count(value: int | None, singular: str, plural: str, style: str) -> Text:
        text = f"{number(value, unknown=UNKNOWN)} {singular if value == 1 else plural}"
        return Text(text, style if value else "dim" if value == 0 else "")

    return Text(", ").join(
        (
            count(now.job.row.failed, "failed trace", "failed traces", "red"),
            count(now.troubles.raised, "block raised", "blocks raised", "yellow"),
            count(now.troubles.repeated, "step tried again", "steps tried again", "yellow"),
        )
    )


def left_line(now: WatchedJob) -> Text:
    job = now.job.row
    if not job.open:
        return Text("nothing")
    left = seconds_left(job)
    if left is None or now.faults:
        return Text(UNKNOWN)
    end = datetime.datetime.now().astimezone() + datetime.timedelta(seconds=left)
    return Text(f"about {duration(left)}, until {end:%H:%M}" + (f" on {end:%Y-%m-%d}" if left > 43_200 else ""))


def print_lines(reader: JobReader, console: Console) -> None:
    """Print a line whenever a trace ended or the job's state changed, and every ten seconds; then the traces."""
    printed: tuple[int, str, list[str]] | None = None
    due = 0.0
    while True:
        now = reader.now()
        job = now.job.row
        ends = job.open if job.traces <= MAX_TRACES_WITH_LINES or not job.open else -1
        state = ends, job.state, [fault.kind for fault in now.faults]
        if state != printed or time.monotonic() >= due:
            printed, due = state, time.monotonic() + LINE_SECONDS
            parts = [Text(f"job {job.id}: ") + over_line(job), speed_line(now), errors_line(now)]
            if job.open:
                parts.append(Text("left ") + left_line(now))
            console.print(Text("; ").join(parts), soft_wrap=True)
            for fault in now.faults:
                console.print(display.fault_line(fault), soft_wrap=True)
        if not job.open:
            break
        time.sleep(PICTURE_SECONDS / 2)
    console.print(display.summary(job), soft_wrap=True)
    console.print(display.traces_table(reader.traces(MAX_LISTED_TRACES)))
