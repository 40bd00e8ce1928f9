"""What people see in a terminal: harmless text, and tables."""

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from weavegen.pool.survey import ServerRow
from weavegen.store.models import JobState
from weavegen.store.reports import JobRow, Retune, TraceRow

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
    terminal = stream.isatty()
    # What the environment says of colours does not make a pipe one that redraws.
    interactive = terminal and os.environ.get("TERM", "") not in ("dumb", "unknown")
    return HarmlessConsole(
        stderr=stderr, highlight=False, width=None if terminal else 200, force_interactive=interactive
    )


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


def duration(seconds: float) -> str:
    """A length of time, roughly."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def number(value: float | None, text: str = "{:,.0f}", unknown: str = "") -> str:
    """A figure; what is not known is not 0."""
    return unknown if value is None else text.format(value)


LEAST, MOST = 12, 60
"""Characters that a shortened column has at least, where there is that much to tell, and at most."""
Columns: TypeAlias = Mapping[str, Sequence[Text | str]]


def table_of(
    columns: Columns,
    short: Collection[str],
    *,
    whole: Collection[str] = (),
    dropped: Sequence[str] = (),
    width: int | None = None,
) -> Table:
    """A table of columns by name. Texts are shortened where they are long, or told whole; the others are numbers.

    With `width` columns for which so many characters have no room are left out, the first of `dropped` first.
    """

    def total(widths: Mapping[str, int]) -> int:
        return sum(widths.values()) + 2 * len(widths) - 2

    widths = {name: max(cell_len(str(one)) for one in (name, *cells)) for name, cells in columns.items()}
    widths |= {name: min(MOST, widths[name]) for name in short if name in widths}
    if width is not None:
        least = {name: min(LEAST, widths[name]) if name in short else widths[name] for name in widths}
        for name in dropped:
            if total(least) > width:
                least.pop(name, None)
        widths = {name: widths[name] for name in least}
        while total(widths) > width and widths != least:
            widths[max(widths, key=lambda name: widths[name] - least[name])] -= 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in widths:
        if name in short:
            table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=widths[name])
        else:
            left = name in whole
            table.add_column(name, justify="left" if left else "right", no_wrap=width is not None and not left)
    for cells in zip(*(columns[name] for name in widths), strict=True):
        table.add_row(*cells)
    return table


def pool_table(
    rows: Sequence[ServerRow], traces: Mapping[str, int], owners: Mapping[str, str], width: int | None = None
) -> Table:
    """One row a model server; `traces`: how many running ones stick to each; `owners`: who lends it."""
    styles = {"up": "green", "full": "cyan", "away": "red"}
    columns: Columns = {
        "server": [cell(row.url) for row in rows],
        "owner": [cell(owners.get(row.url)) for row in rows],
        "state": [Text(row.state, styles[row.state]) for row in rows],
        "model": [cell(row.why, "dim") if row.why else cell(row.model) for row in rows],
        "traces": [str(traces.get(row.url, 0)) for row in rows],
        "running": [number(row.running) for row in rows],
        "waiting": [number(row.waiting) for row in rows],
        "cache": [number(row.cache, "{:.0%}") for row in rows],
        "prefix hits": [number(row.prefix_hits, "{:.0%}") for row in rows],
        "prompt tok/s": [number(row.prompt_rate) for row in rows],
        "generated tok/s": [number(row.generated_rate) for row in rows],
    }
    dropped = ("prefix hits", "prompt tok/s", "owner", "model", "traces", "cache", "waiting", "running")
    return table_of(columns, ("server", "owner", "state", "model"), dropped=dropped, width=width)


def traces_table(rows: Sequence[TraceRow], width: int | None = None) -> Table:
    """One row a trace; a column for remarks where there are any. `width`: as of `table_of`."""
    columns: dict[str, Sequence[Text | str]] = {
        "trace": [str(row.id) for row in rows],
        "bootstrap": [cell(row.bootstrap) for row in rows],
        "status": [Text(row.status, STYLES.get(row.status, "")) for row in rows],
        "because": [cell(row.because) for row in rows],
        "ticks": [str(row.ticks) for row in rows],
        "blocks": [str(row.blocks) for row in rows],
        "bytes": [bytes_text(row.bytes) for row in rows],
        "result": [cell(row.result, RESULTS.get(row.result or "", "")) for row in rows],
    }
    if any(remarks := [remarks_text(row) for row in rows]):
        columns["remarks"] = [cell(remark) for remark in remarks]
    dropped = ("remarks", "because", "bytes", "result", "bootstrap", "blocks")
    return table_of(
        columns, ("bootstrap", "status", "because"), whole=("result", "remarks"), dropped=dropped, width=width
    )


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
