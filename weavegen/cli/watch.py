"""The command that shows a job as it runs: watch. `run` ends in it."""

import contextlib
import dataclasses
import datetime
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import sqlalchemy as sa
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from weavegen import config as configuration
from weavegen.cli.app import Json, app, print_json, reading
from weavegen.cli.complete import job_numbers
from weavegen.errors import UsageError, WeavegenError
from weavegen.monitoring import display
from weavegen.monitoring.display import number
from weavegen.monitoring.progress import Paced, Rates, seconds_left
from weavegen.store import reports
from weavegen.store.reports import JobRow, TraceRow, Troubles

EVERY = 1.0
"""Seconds between two pictures."""
LINE_EVERY = 10.0
"""Seconds between two lines at most, where there is no terminal."""
WINDOW = 60.0
"""Seconds that the rates of a job that runs are means of."""
FEW = 16
"""Traces of a job of which each that ends is worth a line."""
LISTED = 64
"""Traces listed at the end where there is no terminal."""
NAME = 60
"""Characters of a job's name at most."""
UNKNOWN = "—"


@app.command()
def watch(
    job: Annotated[
        int | None, typer.Argument(help="A job's number; the latest by default.", autocompletion=job_numbers)
    ] = None,
    json: Json = False,
) -> None:
    """Show a job as it runs: its traces, rates, errors, estimated end. Exit code 1 if any trace failed.

    It ends with the job. Ctrl-C leaves earlier, and the job goes on. What the figures mean: docs/terminal.md.

    Example: weavegen watch 3
    """
    with reading() as conn:
        job_id = job if job is not None else reports.latest(conn)
        [row] = reports.jobs(conn, job_id)
        working = not row.open or reports.worked_on(conn, job_id)
    if not working and (why := nobody_works()):
        display.console(stderr=True).print(why, markup=False)
    raise typer.Exit(follow(job_id, json))


def nobody_works() -> str | None:
    """Why no trace goes on here, if so."""
    from weavegen.services import fleet, redis

    config = configuration.load()
    try:
        redis.check(config)
    except UsageError as error:
        return str(error)
    return None if fleet.answering(config) else "no worker answers: start them with `weavegen up`"


def follow(job_id: int, json: bool = False) -> int:
    """As `show`, for a job that goes on when its watcher leaves."""
    try:
        return show(job_id, json)
    except KeyboardInterrupt:
        name = display.command()
        sys.stderr.write(
            f"job {job_id} goes on: `{name} watch {job_id}` shows it again, `{name} cancel {job_id}` ends it\n"
        )
        return 130


def show(job_id: int, json: bool = False, *, aside: bool = False) -> int:
    """Show a job until all its traces are over; without a terminal in lines. Returns the exit code.

    With `json` or `aside` what is shown goes to standard error; with `json`, in the end, the traces to standard
    output.
    """
    console = display.console(stderr=json or aside)
    with told_if_the_database_goes(), reading() as conn:
        look = Look(conn, job_id)
        if console.is_interactive:
            live(look, console)
        else:
            lines(look, console)
        if json:
            print_json([dataclasses.asdict(row) for row in look.traces(None)])
        return 1 if look.now().job.failed else 0


@contextlib.contextmanager
def told_if_the_database_goes() -> Iterator[None]:
    """For commands that look for hours. Raises WeavegenError, in one line."""
    try:
        yield
    except sa.exc.OperationalError as error:
        reason = " ".join(str(error.orig).split())[:300]
        raise WeavegenError(
            f"the database does not answer any more ({reason}): `{display.command()} up` starts it"
        ) from None


def live(look: "Look", console: Console) -> None:
    """One picture, drawn over the one before."""
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as shown:
        while True:
            now, size = look.now(), console.size
            shown.update(picture(now, look, console), refresh=True)
            if not now.job.open:
                return
            wait(console, size)


def wait(console: Console, size: object) -> None:
    """Until the next picture; a window that has another size is drawn anew at once."""
    until = time.monotonic() + EVERY
    while time.monotonic() < until and console.size == size:
        time.sleep(0.1)


@dataclass(frozen=True)
class Now:
    """A job at a moment."""

    job: JobRow
    blocks: float | None
    """A second: over the last minute, of a job that is over over its time; None: not looked at long enough."""
    tokens: float | None
    """Sampled, a second."""
    troubles: Troubles


class Look:
    """What is asked about a job, as seldom as it must be where answers take long."""

    def __init__(self, conn: sa.Connection, job_id: int) -> None:
        self.conn, self.job_id = conn, job_id
        self.rates = Rates(WINDOW)
        self.job, self.troubles = Paced(self._job, EVERY), Paced(self._troubles, EVERY)

    def now(self) -> Now:
        job, blocks, tokens = self.job.get()
        return Now(job, blocks, tokens, self.troubles.get())

    def traces(self, limit: int | None, status: str | None = None) -> list[TraceRow]:
        with self.conn.begin():
            return reports.traces(self.conn, self.job_id, limit, status=status)

    def _job(self) -> tuple[JobRow, float | None, float | None]:
        with self.conn.begin():
            [job] = reports.jobs(self.conn, self.job_id)
        if not job.open:
            self.troubles.due = 0.0  # of a job that is over they are told as they are
            return (
                (job, job.blocks / job.seconds, job.sampled_tokens / job.seconds)
                if job.seconds
                else (job, None, None)
            )
        return job, *self.rates.now(time.monotonic(), job)

    def _troubles(self) -> Troubles:
        return reports.troubles(self.conn, self.job.get()[0])


def picture(now: Now, look: Look, console: Console) -> RenderableType:
    """The traces for which the window has room, the bar, the figures."""
    tail = figures(now, console)
    options = console.options.update(width=console.width, height=None)
    room = console.height - len(console.render_lines(tail, options)) - 2  # the table's head, the cursor's line
    parts: list[RenderableType] = []
    if now.job.traces <= room:
        parts = [display.traces_table(look.traces(None), console.width)]
    elif room > 2:
        rows = look.traces(room - 1, "running" if now.job.open else "failed")
        more = Text(f"… and {now.job.traces - len(rows):,} more", "dim")
        parts = [display.traces_table(rows, console.width), more] if rows else [more]
    return Group(*parts, tail)


def figures(now: Now, console: Console) -> RenderableType:
    """What is told of a job of any size."""
    job = now.job
    bar = Table.grid(padding=(0, 1))
    width = max(10, min(60, console.width - 8))
    bar.add_row(ProgressBar(total=1.0, completed=job.progress, width=width), f"{job.progress:4.0%}")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (
        (f"job {job.id}", over_line(job)),
        ("speed", speed_line(now)),
        ("errors", errors_line(now)),
        ("left", left_line(job)),
        ("written", written_line(job)),
    ):
        table.add_row(name, text)
    return Group(bar, table)


def over_line(job: JobRow) -> Text:
    counts = (f"{count:,} {name}" for name, count in (("running", job.running), ("queued", job.queued)) if count)
    agent = f", {job.agent}" if job.agent != "weave" else ""
    parts = [f"{job.traces - job.open:,} of {job.traces:,} over", *counts, display.state_of(job)]
    name = display.cell(job.name)
    name.truncate(NAME, overflow="ellipsis")
    return name + Text(f"{agent}: {', '.join(filter(None, parts))}")


def speed_line(now: Now) -> Text:
    parts = (
        f"{number(now.tokens, unknown=UNKNOWN)} tokens/s",
        f"{number(now.blocks and now.blocks * 60, '{:,.1f}', UNKNOWN)} blocks/min",
        f"{number(now.troubles.kept_share, '{:.0%}', UNKNOWN)} of the tokens kept",
    )
    return Text(", ".join(parts))


def errors_line(now: Now) -> Text:
    def count(value: int | None, one: str, many: str, style: str) -> Text:
        text = f"{number(value, unknown=UNKNOWN)} {one if value == 1 else many}"
        return Text(text, style if value else "dim" if value == 0 else "")

    return Text(", ").join(
        (
            count(now.job.failed, "failed trace", "failed traces", "red"),
            count(now.troubles.raised, "block raised", "blocks raised", "yellow"),
            count(now.troubles.repeated, "step tried again", "steps tried again", "yellow"),
        )
    )


def left_line(job: JobRow) -> Text:
    if not job.open:
        return Text("nothing")
    left = seconds_left(job)
    if left is None:
        return Text(UNKNOWN)
    end = datetime.datetime.now().astimezone() + datetime.timedelta(seconds=left)
    return Text(
        f"about {display.duration(left)}, until {end:%H:%M}" + (f" on {end:%Y-%m-%d}" if left > 43_200 else "")
    )


def written_line(job: JobRow) -> Text:
    each = number(job.candidates_per_block, "{:.1f}", UNKNOWN)
    return Text(
        f"{job.blocks:,} blocks, {display.bytes_text(job.bytes)}, {job.sampled_tokens:,} tokens sampled "
        f"in {display.duration(job.seconds)}; {each} candidates per block"
    )


def lines(look: Look, console: Console) -> None:
    """A line whenever something changed, and every so often; at the end the traces."""
    said: tuple[int, str] | None = None
    due = 0.0
    while True:
        now = look.now()
        ends = now.job.open if now.job.traces <= FEW or not now.job.open else -1
        if (ends, now.job.state) != said or time.monotonic() >= due:
            said, due = (ends, now.job.state), time.monotonic() + LINE_EVERY
            line = Text(f"job {now.job.id}: ") + over_line(now.job)
            told = (
                speed_line(now),
                errors_line(now),
                *([Text("left ") + left_line(now.job)] if now.job.open else []),
            )
            console.print(Text("; ").join((line, *told)), soft_wrap=True)
        if not now.job.open:
            break
        time.sleep(EVERY / 2)
    console.print(display.summary(now.job), soft_wrap=True)
    console.print(display.traces_table(look.traces(LISTED)))
