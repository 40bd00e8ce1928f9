"""Tables and lines for a terminal. Text from models, files and people is made harmless before it is printed."""

import datetime
import os
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from weavegen.pool.capabilities import FEATURES, Capabilities
from weavegen.services.faults import Fault
from weavegen.store.reports import JobRow, Retune
from weavegen.store.servers import ServerHealth
from weavegen.store.states import JobState
from weavegen.text import bytes_text, harmless, number

STATUS_STYLES = {"running": "cyan", "ended": "green", "failed": "red", "cancelled": "yellow", "queued": "dim"}
RESULT_STYLES = {"won": "green", "drawn": "yellow", "lost": "red"}
SERVER_STYLES = {"up": "green", "full": "cyan", "away": "red", "failing": "red"}
MIN_WIDTH, MAX_WIDTH = 12, 60
"""Minimum and maximum width, in characters, of a column whose texts are shortened."""
RECENT_SECONDS = 3600.0
"""Older errors of servers that answer are not shown."""

ID = re.compile("(^|_)id$")
"""Names of columns of ids, whose digits are not grouped."""
Fields: TypeAlias = Mapping[str, str | Callable[[Any], Any]]
"""By heading: the attribute of a row, or a function of the row."""


class HarmlessConsole(Console):
    """A console that makes every printed text harmless, and keeps its own colours and cursor movements."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text), style, control)

    def on_broken_pipe(self) -> None:
        """As print does it: `head` has read enough, and rich would end this program with exit code 1."""
        if self.stderr:  # nobody reads what went wrong
            super().on_broken_pipe()
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console on standard output or standard error; 200 columns wide if that is not a terminal."""
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    # Environment variables about colours must not make rich redraw in a pipe.
    animated = terminal and os.environ.get("TERM", "") not in ("dumb", "unknown")
    width = None if terminal else 200
    return HarmlessConsole(stderr=stderr, highlight=False, emoji=False, width=width, force_interactive=animated)


def write(text: str) -> None:
    """Write a text to standard output: unchanged into a pipe or file, harmless to a terminal."""
    sys.stdout.write(harmless(text) if sys.stdout.isatty() else text)


def cell(text: str | None, style: str = "") -> Text:
    """Untrusted text as a table cell: one line, no markup."""
    return Text(harmless(" ".join((text or "").split())), style)


def command() -> str:
    """What the user can type to run this program again."""
    found = shutil.which("weavegen")
    return "weavegen" if found and Path(found).resolve() == Path(sys.argv[0]).resolve() else sys.argv[0]


def table(
    rows: Sequence[Any],
    fields: Fields | None = None,
    *,
    short: Collection[str] | None = None,
    whole: Collection[str] = (),
    dropped: Sequence[str] = (),
    width: int | None = None,
) -> Table:
    """A table with one line per row. Without `fields`: all keys or attributes of the rows, under their names.

    With `short`, it fits into `width` characters; None: no limit. Columns in `short` are text that may be shortened,
    those in `whole` text that may wrap; all others are short and right-aligned. If the table is too wide, columns
    are left out, in the order of `dropped`.
    """
    if fields is None:
        first = rows[0] if rows else {}
        names = first if isinstance(first, Mapping) else vars(first)
        fields = {name.replace("_", " "): name for name in names}
    drawn = Table(box=None, header_style="bold", pad_edge=False)
    values = {heading: [value_of(row, field) for row in rows] for heading, field in fields.items()}
    ids = {heading for heading, field in fields.items() if isinstance(field, str) and ID.search(field)}
    cells = {heading: [cell_of(value, heading in ids) for value in column] for heading, column in values.items()}
    widths = dict.fromkeys(cells) if short is None else fitting(cells, short, dropped, width)
    for heading, most in widths.items():
        if short is None:
            numeric = any(isinstance(value, int | float) for value in values[heading])
            drawn.add_column(heading, justify="right" if numeric else "left", no_wrap=numeric)
        elif heading in short:
            drawn.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=most)
        else:
            left = heading in whole
            drawn.add_column(heading, justify="left" if left else "right", no_wrap=width is not None and not left)
    for row in zip(*(cells[heading] for heading in widths), strict=True):
        drawn.add_row(*row)
    return drawn


def fitting(
    cells: Mapping[str, Sequence[Text]], short: Collection[str], dropped: Sequence[str], width: int | None
) -> dict[str, int | None]:
    """The columns that fit into `width` characters, with the number of characters of each; see `table`."""

    def total(widths: Mapping[str, int]) -> int:
        return sum(widths.values()) + 2 * len(widths) - 2

    widths = {name: max(cell_len(str(text)) for text in (name, *column)) for name, column in cells.items()}
    widths |= {name: min(MAX_WIDTH, widths[name]) for name in short if name in widths}
    if width is not None:
        least = {name: min(MIN_WIDTH, widths[name]) if name in short else widths[name] for name in widths}
        for name in dropped:
            if total(least) > width:
                least.pop(name, None)
        widths = {name: widths[name] for name in least}
        while total(widths) > width and widths != least:
            widths[max(widths, key=lambda name: widths[name] - least[name])] -= 1
    return {**widths}


def value_of(row: Any, field: str | Callable[[Any], Any]) -> Any:
    if callable(field):
        return field(row)
    return row[field] if isinstance(row, Mapping) else getattr(row, field)


def cell_of(value: Any, plain: bool) -> Text:
    """A value as a table cell; empty for None. `plain`: an id, whose digits are not grouped."""
    if isinstance(value, Text):
        return value
    if isinstance(value, int):
        return Text(str(value) if plain else f"{value:,}")
    if isinstance(value, float):
        return Text(f"{value:.6g}")
    if isinstance(value, datetime.datetime):
        return Text(local_time(value))
    return cell(value)


def local_time(moment: datetime.datetime) -> str:
    """A moment in the time zone of this machine, with the zone's name."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def pool_table(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> Table:
    """One line per model server, as cli/pool.py gives them."""
    fields: Fields = {
        "server": "url",
        "owner": "owner",
        "state": lambda row: Text(row["state"], SERVER_STYLES[row["state"]]),
        "model": lambda row: cell(row["why"], "dim") if row["why"] else row["model"],
        "traces": "traces",
        "running": "running",
        "waiting": "waiting",
        "cache": lambda row: number(row["cache"], "{:.0%}"),
        "prefix hits": lambda row: number(row["prefix_hits"], "{:.0%}"),
        "prompt tok/s": lambda row: number(row["prompt_rate"]),
        "generated tok/s": lambda row: number(row["generated_rate"]),
    }
    dropped = ("prefix hits", "prompt tok/s", "owner", "model", "traces", "cache", "waiting", "running")
    return table(rows, fields, short=("server", "owner", "state", "model"), dropped=dropped, width=width)


def capabilities(url: str, has: Capabilities | str) -> list[RenderableType]:
    """What a model server can do, and which agents and features that allows; or why it can't be asked."""
    if isinstance(has, str):
        return [f"{url}: {has}"]
    rows = []
    for feature in FEATURES:
        missing = feature.missing(has)
        state = Text("no", "red" if feature.agents else "yellow") if missing else Text("yes", "green")
        needs = ", ".join(need.replace("|", " or ") for need in feature.needs)
        without = feature.without if missing else ""
        rows.append({"agents or feature": feature.name, "": state, "needs": needs, "without it": without})
    length = "" if has.length is None else f", {has.length:,} tokens"
    logprobs = f", {has.logprobs} logprobs" if has.logprobs else ", no logprobs"
    return [f"{url}: {has.model}{length}{logprobs}", table(rows)]


def health_lines(health: Sequence[ServerHealth]) -> Iterator[Text]:
    """One line per server at which requests failed within an hour, with the last error."""
    for server in health:
        if server.age < RECENT_SECONDS:
            text = f"{server.url} {'fails' if server.failing else 'had errors'}: {server.line}"
            yield cell(f"{text}: {server.advice}", "red") if server.failing else cell(text)


def traces_table(rows: Sequence[Any], width: int | None = None) -> Table:
    """One line per trace; the column for remarks is left out where no trace has any."""
    fields: Fields = {
        "trace": "id",
        "bootstrap": "bootstrap",
        "status": lambda row: Text(row.status, STATUS_STYLES.get(row.status, "")),
        "because": "because",
        "ticks": "ticks",
        "blocks": "blocks",
        "bytes": lambda row: bytes_text(row.bytes),
        "result": lambda row: cell(row.result, RESULT_STYLES.get(row.result or "", "")),
    }
    if any(map(remarks_text, rows)):
        fields = {**fields, "remarks": remarks_text}
    short, dropped = ("bootstrap", "status", "because"), ("because", "bytes", "result", "bootstrap", "blocks")
    return table(rows, fields, short=short, whole=("result", "remarks"), dropped=("remarks", *dropped), width=width)


def remarks_text(row: Any) -> str:
    """Whether the trace is a fork or a retry, whether it was retried and isolated; empty for most traces."""
    parts = [] if row.isolated else ["not isolated"]
    parts += [f"fork of trace {row.fork_of} at {row.fork_at}"] if row.fork_of is not None else []
    parts += [f"retry of trace {row.retry_of}"] if row.retry_of is not None else []
    if row.retried_as:
        parts.append(f"retried as trace {', '.join(map(str, row.retried_as))}")
    return "; ".join(parts)


def retune_line(retune: Retune) -> Text:
    """When a job's settings were changed, and the changes in the form that `weavegen retune` takes."""
    values = (
        f"{key}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in retune.changed.items()
    )
    return cell(f"revision {retune.revision}, {local_time(retune.created_at)}: {' '.join(values)}")


def fault_line(fault: Fault) -> Text:
    """A fault and what to do, in a line."""
    return Text("fault: ", "bold red") + cell(f"{fault.what}: {fault.advice}")


def state_of(job: JobRow) -> str:
    """paused, with the reason if weavegen did it, or draining; empty for an active job."""
    if job.pause_reason:
        return harmless(f"{job.state}: {job.pause_reason}")
    return "" if job.state == JobState.ACTIVE else job.state


def jobs_table(rows: Sequence[JobRow]) -> Table:
    """One line per job, and a second where it is paused or draining or its settings were changed."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        counts = ("queued", "running", "ended", "failed", "cancelled", "blocks")
        lines.append(
            {"job": Text(str(row.id)), "name": cell(row.name)}
            | {name: Text(str(getattr(row, name))) for name in counts}
            | {
                "bytes": Text(bytes_text(row.bytes)),
                "blocks/s": Text(f"{row.blocks / row.seconds:.1f}" if row.seconds else ""),
                "candidates/block": Text(f"{row.candidates_per_block:.1f}" if row.candidates_per_block else ""),
            }
        )
        marks = filter(None, (state_of(row), f"revision {row.revision}" if row.revision else ""))
        if text := ", ".join(marks):
            lines.append(dict.fromkeys(lines[-1], "") | {"name": Text(f"  {text}", "yellow")})
    drawn = table(lines)
    for column in drawn.columns:
        column.no_wrap, column.justify = True, "left" if column.header == "name" else "right"
    return drawn


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
