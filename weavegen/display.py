"""What people see in a terminal: tables, and a job as it runs."""

import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import sqlalchemy as sa
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from weavegen.pool.survey import ServerRow
from weavegen.store import reports
from weavegen.store.models import JobState
from weavegen.store.reports import JobRow, Retune, TraceRow

SHOWN = 16
"""Traces listed while a job runs; a larger job shows its sums alone."""
STYLES = {"running": "cyan", "ended": "green", "failed": "red", "cancelled": "yellow", "queued": "dim"}
RESULTS = {"won": "green", "drawn": "yellow", "lost": "red"}
_ESCAPES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and newline, C1 too, and what makes text read in another order than it is written."""


class HarmlessConsole(Console):
    """A console whose texts are harmless, whoever they come from; its own colours and cursor movements stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)


def console(*, stderr: bool = False) -> Console:
    """Where tables go; what is no terminal gets room for whole lines."""
    stream = sys.stderr if stderr else sys.stdout
    return HarmlessConsole(stderr=stderr, highlight=False, width=None if stream.isatty() else 200)


def harmless(text: str) -> str:
    """Text less what a terminal would obey."""
    return _ESCAPES.sub("\ufffd", text)


def harmless_json(text: str) -> str:
    """JSON with what a terminal would obey as escapes, which mean the same."""
    return _ESCAPES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write(text: str) -> None:
    """A text as it is to standard output, harmless where that is a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)


def cell(text: str | None, style: str = "") -> Text:
    """Somebody else's text in a table: one line, no markup."""
    return Text(harmless(" ".join((text or "").split())), style)


def command() -> str:
    """How the user can type this program's name."""
    found = shutil.which("weavegen")
    return "weavegen" if found and Path(found).resolve() == Path(sys.argv[0]).resolve() else sys.argv[0]


def bytes_text(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def pool_table(rows: Sequence[ServerRow], traces: Mapping[str, int], owners: Mapping[str, str]) -> Table:
    """One row a model server; `traces`: how many running ones stick to each; `owners`: who lends it."""

    def number(value: float | None, text: str = "{:,.0f}") -> str:
        return "" if value is None else text.format(value)

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("server", "owner", "state", "model"):
        table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=60)
    for column in ("traces", "running", "waiting", "cache", "prefix hits", "prompt tok/s", "generated tok/s"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            cell(row.url),
            cell(owners.get(row.url)),
            Text(row.state, {"up": "green", "full": "cyan", "away": "red"}[row.state]),
            cell(row.model),
            str(traces.get(row.url, 0)),
            number(row.running),
            number(row.waiting),
            number(row.cache, "{:.0%}"),
            number(row.prefix_hits, "{:.0%}"),
            number(row.prompt_rate),
            number(row.generated_rate),
        )
        if row.why:
            table.add_row("", "", Text("  ") + cell(row.why, "dim"))
    return table


def traces_table(rows: Sequence[TraceRow]) -> Table:
    """One row a trace; a column for remarks where there are any."""
    remarks = [remarks_text(row) for row in rows]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("trace", "bootstrap", "status", "because"):
        table.add_column(column, overflow="ellipsis", no_wrap=True, max_width=60)
    for column in ("ticks", "blocks", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("result")
    if any(remarks):
        table.add_column("remarks")
    for row, remark in zip(rows, remarks, strict=True):
        table.add_row(
            str(row.id),
            cell(row.bootstrap),
            Text(row.status, STYLES.get(row.status, "")),
            cell(row.because),
            str(row.ticks),
            str(row.blocks),
            bytes_text(row.bytes),
            cell(row.result, RESULTS.get(row.result or "", "")),
            *([remark] if any(remarks) else []),
        )
    return table


def remarks_text(row: TraceRow) -> str:
    """Which trace it does over, which ones do it over, whether it was isolated; empty for most traces."""
    parts = [] if row.isolated else ["not isolated"]
    parts += [f"fork of trace {row.fork_of} at {row.fork_at}"] if row.fork_of is not None else []
    parts += [f"retry of trace {row.retry_of}"] if row.retry_of is not None else []
    if row.retried_as:
        parts.append(f"retried as trace {', '.join(map(str, row.retried_as))}")
    return "; ".join(parts)


def retune_line(retune: Retune) -> Text:
    """When a job's settings were changed, and what of them, as `weavegen retune` takes it."""
    when = retune.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    values = (
        f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in retune.changed.items()
    )
    return cell(f"revision {retune.revision}, {when}: {' '.join(values)}")


def state_of(job: JobRow) -> str:
    """paused or draining; empty for an active job."""
    return "" if job.state == JobState.ACTIVE else job.state


def jobs_table(rows: Sequence[JobRow]) -> Table:
    """One row a job; below its name its state where it is not active, the revision of its settings above 0."""
    names = (
        "job", "name", "queued", "running", "ended", "failed", "cancelled", "blocks", "bytes", "blocks/s",
        "candidates/block",
    )  # fmt: skip
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        table.add_column(name, no_wrap=True, justify="left" if name == "name" else "right")
    for row in rows:
        counts = (row.queued, row.running, row.ended, row.failed, row.cancelled, row.blocks)
        rate = f"{row.blocks / row.seconds:.1f}" if row.seconds else ""
        sampled = f"{row.candidates_per_block:.1f}" if row.candidates_per_block else ""
        size = bytes_text(row.bytes)
        table.add_row(str(row.id), cell(row.name), *map(str, counts), size, rate, sampled)
        marks = [state_of(row), f"revision {row.revision}" if row.revision else ""]
        if any(marks):
            table.add_row("", Text(f"  {', '.join(filter(None, marks))}", "yellow"))
    return table


def summary(job: JobRow) -> Text:
    """A job in one line."""
    rate = job.blocks / job.seconds if job.seconds else 0.0
    parts = (
        state_of(job),
        f"{job.traces - job.open} of {job.traces} over",
        f"{job.failed} failed",
        f"{job.blocks} blocks",
        bytes_text(job.bytes),
        f"{job.sampled_tokens} tokens",
        f"{job.candidates_per_block or 0.0:.1f} candidates per kept block",
        f"{rate:.1f} blocks/s",
        f"{job.seconds:.0f} s",
    )
    return Text(f"job {job.id}: {', '.join(filter(None, parts))}")


def watch(conn: sa.Connection, job_id: int, console: Console, interval: float = 0.5) -> list[TraceRow]:
    """Show a job until all its traces are over; without a terminal, a line whenever something changed."""
    job, rows = read(conn, job_id)
    if console.is_terminal:
        with Live(picture(job, rows), console=console, refresh_per_second=4) as live:
            while job.open:
                time.sleep(interval)
                job, rows = read(conn, job_id)
                live.update(picture(job, rows))
    else:
        said, last = (-1, ""), 0.0
        while job.open:
            now = (job.open, job.state)
            if now != said or time.monotonic() - last > 10:
                said, last = now, time.monotonic()
                console.print(summary(job))
            time.sleep(interval)
            job, rows = read(conn, job_id)
        console.print(summary(job))
        console.print(traces_table(rows[: 4 * SHOWN]))
    return rows


def read(conn: sa.Connection, job_id: int) -> tuple[JobRow, list[TraceRow]]:
    try:
        return reports.jobs(conn, job_id)[0], reports.traces(conn, job_id)
    finally:
        conn.rollback()


def picture(job: JobRow, rows: Sequence[TraceRow]) -> Group:
    """The job's bar, its traces, its sums."""
    bar = Table.grid()
    bar.add_row(ProgressBar(total=job.traces, completed=job.traces - job.open, width=60))
    parts: list[RenderableType] = [traces_table(rows)] if len(rows) <= SHOWN else []
    parts += [bar, summary(job)]
    return Group(*parts)
