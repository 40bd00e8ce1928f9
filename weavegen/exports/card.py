"""The dataset card: README.md with the front matter that `datasets.load_dataset` reads."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from weavegen import __version__
from weavegen.config import SIMULATED_MODEL
from weavegen.exports.format import FileFormat, Format, RowFormat, comments

ABOUT = """
select array_agg(distinct j.model) filter (where j.model is not null) as models,
  bool_or(j.model is null) as unnamed,
  array_agg(distinct j.version order by j.version) as versions,
  array_agg(distinct f.name order by f.name) as bootstraps
from traces t join jobs j on j.id = t.job_id join bootstraps f on f.id = t.bootstrap_id
where t.id = any(cast(:traces as bigint[]))
"""
SIMULATED = "SIMULATED MODEL DATA"
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "n>1B")
"""The hub's names for sizes: each a factor of ten above the one before."""


@dataclass
class Origin:
    """Where the rows of an export come from."""

    models: set[str] = field(default_factory=set)
    unnamed: bool = False
    """Some jobs named no model: they used the only one that their servers had."""
    versions: set[str] = field(default_factory=set)
    bootstraps: set[str] = field(default_factory=set)

    def add(self, conn: sa.Connection, traces: list[int]) -> None:
        """Take these traces in."""
        row = conn.execute(sa.text(ABOUT), {"traces": traces}).one()
        self.models |= set(row.models or ())
        self.unnamed |= bool(row.unnamed)
        self.versions |= set(row.versions or ())
        self.bootstraps |= set(row.bootstraps or ())

    def simulated(self, simulation: bool) -> bool:
        """Whether some of it was written by the simulated model.

        `simulation`: it is what this installation serves to jobs that name no model.
        """
        return SIMULATED_MODEL in self.models or (self.unnamed and simulation)


@dataclass
class Written:
    """What an export wrote."""

    rows: dict[str, int]
    """By split."""
    traces: dict[str, int]
    files: list[str]
    """In order, below the folder."""
    sha256: dict[str, str]
    """Of each of them, hexadecimal."""
    text_bytes: int
    """Of the rows, before compression."""
    bytes: int
    """Of the files."""
    left_out: dict[str, int]
    notes: dict[str, int]
    origin: Origin
    simulated: bool


def card(format: Format, where: str | None, limit: int | None, asked: dict[str, Any], written: Written) -> str:
    """The text of README.md. Nothing in it changes while the corpus stays the same."""
    total = sum(written.rows.values())
    head = ["---"]
    if isinstance(format, RowFormat):
        # `datasets` keeps what it has read under the folder's name and these lines, whatever the files hold:
        # without the hash it would give the rows of an earlier export to a folder of that name.
        head += ["configs:", "- config_name: default", f"  description: {digest(written)}", "  data_files:"]
        # A split that nothing fell into is named below alone: `datasets` refuses one without rows.
        filled = [name for name, rows in written.rows.items() if rows]
        head += [part for name in filled for part in (f"  - split: {name}", f"    path: data/{name}-*")]
    tags = ["weavegen", "agent", "traces", *(["synthetic", "simulated"] if written.simulated else [])]
    size = next(name for power, name in enumerate(SIZES, 3) if total < 10**power or name == SIZES[-1])
    head += ["tags:", *(f"- {tag}" for tag in tags), "size_categories:", f"- {size}", "---", ""]
    lines = [f"# weavegen export: {format.name}", "", format.about, ""]
    if written.simulated:
        lines += [
            f"**{SIMULATED}**: the text was written by weavegen's simulated model ({SIMULATED_MODEL}), which is "
            "no language model but a script. It is good for trying a pipeline and for nothing else.",
            "",
        ]
    lines += ["| split | rows | traces |", "|---|---|---|"]
    lines += [f"| {name} | {written.rows[name]} | {written.traces[name]} |" for name in written.rows]
    lines += [
        "",
        "A trace is in one split alone, with the traces that do it over and its forks: which one is a hash of its "
        "job and number, so no split has seen another's traces, and the next export splits them the same way.",
        "",
        f"- View: `{format.view}`, rows by {', '.join(f'`{name}`' for name in format.key)}",
        f"- Condition: {code(where) if where else 'none: all rows'}"
        + (f", the first {limit} rows" if limit else ""),
        *(f"- {name.replace('_', ' ')}: {value}" for name, value in asked.items() if value is not None),
        f"- Made by weavegen {__version__}, of traces written by {', '.join(sorted(written.origin.versions))}",
        f"- Models: {models(written.origin)}",
        f"- Bootstraps: {', '.join(sorted(written.origin.bootstraps)) or 'none'}",
        *(f"- Left out, {count} rows: {reason}" for reason, count in sorted(written.left_out.items())),
        *(f"- In {count} rows: {what}" for what, count in sorted(written.notes.items())),
        "",
    ]
    if isinstance(format, RowFormat):
        lines += ["| column | type | meaning |", "|---|---|---|"]
        types = {one.name: str(one.type) for one in format.schema}
        lines += [f"| `{name}` | {types[name]} | {text} |" for name, text in comments(format.schema).items()]
    elif isinstance(format, FileFormat):
        lines += [f"A file for each trace: `SPLIT/trace-ID.{format.suffix}`; `weavegen show ID` prints it."]
    return "\n".join(head + lines) + "\n"


def digest(written: Written) -> str:
    """A hash of all files."""
    lines = "".join(f"{written.sha256[name]}  {name}\n" for name in sorted(written.sha256))
    return f"sha256-{hashlib.sha256(lines.encode()).hexdigest()}"


def code(text: str) -> str:
    """A user's text as code on one line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"


def models(origin: Origin) -> str:
    """Names of models, and that some were not named."""
    names = sorted(origin.models)
    if origin.unnamed:
        names.append("the only one that the job's servers had (jobs that named none)")
    return ", ".join(names) or "none"
