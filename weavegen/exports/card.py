"""The dataset card: README.md with the front matter that `datasets.load_dataset` reads."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import sqlalchemy as sa

from weavegen import sql
from weavegen.config import SIMULATED_MODEL
from weavegen.exports.format import FileFormat, Format, RowFormat, comments
from weavegen.version import __version__

CARD = "README.md"
SIMULATED = "SIMULATED MODEL DATA"
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "n>1B")
"""The hub's size categories, each ten times the one before."""
TRACES_PER_QUERY = 500


@dataclass
class Origin:
    """Where the rows of an export come from."""

    models: set[str] = field(default_factory=set)
    unnamed: bool = False
    """Some jobs named no model and used the only one of their servers."""
    versions: set[str] = field(default_factory=set)
    bootstraps: set[str] = field(default_factory=set)

    def simulated(self, simulation: bool) -> bool:
        """Whether the simulated model wrote some of it.

        `simulation`: this installation serves the simulated model to jobs that name none.
        """
        return SIMULATED_MODEL in self.models or (self.unnamed and simulation)


def read_origin(conn: sa.Connection, traces: Iterator[int]) -> Origin:
    """Read where these traces come from."""
    origin = Origin()
    while ids := list(islice(traces, TRACES_PER_QUERY)):
        row = conn.execute(sql.load("exports/origin"), {"traces": ids}).one()
        origin.models |= set(row.models or ())
        origin.unnamed |= bool(row.unnamed)
        origin.versions |= set(row.versions or ())
        origin.bootstraps |= set(row.bootstraps or ())
    return origin


@dataclass
class Written:
    """The result of an export."""

    rows: dict[str, int]
    """By split."""
    traces: dict[str, int]
    """Traces with rows, by split."""
    files: list[str]
    """In order, relative to the folder."""
    sha256: dict[str, str]
    """Of each file, hexadecimal."""
    text_bytes: int
    """Size of the rows before compression."""
    bytes: int
    """Size of the files."""
    left_out: dict[str, int]
    """Rows that were not written, by reason."""
    notes: dict[str, int]
    """Rows that there is a remark about, by remark."""
    origin: Origin
    simulated: bool


def card(format: Format, where: str | None, limit: int | None, options: dict[str, Any], written: Written) -> str:
    """The text of README.md. It is the same as long as the corpus is."""
    simulated = [
        f"**{SIMULATED}**: the text was written by weavegen's simulated model ({SIMULATED_MODEL}), which is a "
        "script and not a language model. It is good for trying a pipeline and for nothing else.",
        "",
    ]
    lines = [
        *front_matter(format, written),
        f"# weavegen export: {format.name}", "", format.about, "",
        *(simulated if written.simulated else []),
        "| split | rows | traces |", "|---|---|---|",
        *(f"| {split} | {rows} | {written.traces[split]} |" for split, rows in written.rows.items()), "",
        "Each trace is in one split only, together with its retries and its forks. A hash of its job and number "
        "decides which, so the splits share no traces, and the next export splits them the same way.",
        "",
        f"- View: `{format.view}`, rows by {', '.join(f'`{name}`' for name in format.key)}",
        f"- Condition: {code(where) if where else 'none: all rows'}"
        + (f", the first {limit} rows" if limit else ""),
        *(f"- {name.replace('_', ' ')}: {value}" for name, value in options.items() if value is not None),
        f"- Made by weavegen {__version__}, of traces written by {', '.join(sorted(written.origin.versions))}",
        f"- Models: {models(written.origin)}",
        f"- Bootstraps: {', '.join(sorted(written.origin.bootstraps)) or 'none'}",
        *(f"- Left out, {count} rows: {reason}" for reason, count in sorted(written.left_out.items())),
        *(f"- In {count} rows: {remark}" for remark, count in sorted(written.notes.items())),
        "",
    ]  # fmt: skip
    if isinstance(format, RowFormat):
        lines += ["| column | type | meaning |", "|---|---|---|"]
        types = {field.name: str(field.type) for field in format.schema}
        lines += [f"| `{name}` | {types[name]} | {text} |" for name, text in comments(format.schema).items()]
    elif isinstance(format, FileFormat):
        lines += [f"A file per trace: `SPLIT/trace-ID.{format.suffix}`; `weavegen show ID` prints the trace."]
    return "\n".join(lines) + "\n"


def front_matter(format: Format, written: Written) -> list[str]:
    """The card's settings, which `datasets` and the hub read."""
    lines = ["---"]
    if isinstance(format, RowFormat):
        # `datasets` caches a folder by its name and these lines, not by its files. Without the hash it would load
        # an earlier export to a folder of the same name.
        lines += ["configs:", "- config_name: default", f"  description: {digest(written)}", "  data_files:"]
        # `datasets` refuses a split without rows, so the table alone has it.
        filled = [split for split, rows in written.rows.items() if rows]
        lines += [line for split in filled for line in (f"  - split: {split}", f"    path: data/{split}-*")]
    tags = ["weavegen", "agent", "traces", *(["synthetic", "simulated"] if written.simulated else [])]
    total = sum(written.rows.values())
    size = next(size for power, size in enumerate(SIZES, 3) if total < 10**power or size == SIZES[-1])
    return [*lines, "tags:", *(f"- {tag}" for tag in tags), "size_categories:", f"- {size}", "---", ""]


def digest(written: Written) -> str:
    """A hash of all files."""
    lines = "".join(f"{written.sha256[name]}  {name}\n" for name in sorted(written.sha256))
    return f"sha256-{hashlib.sha256(lines.encode()).hexdigest()}"


def code(text: str) -> str:
    """A user's text as Markdown code on one line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"


def models(origin: Origin) -> str:
    """The names of the models."""
    names = sorted(origin.models)
    if origin.unnamed:
        names.append("the only one of the job's servers (for jobs that named none)")
    return ", ".join(names) or "none"
