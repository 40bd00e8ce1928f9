"""The dataset card: README.md with the front matter that `datasets.load_dataset` reads."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from weavegen.config import SIMULATED_MODEL
from weavegen.database import Connection
from weavegen.exports.format import Format, RowFormat, comments
from weavegen.store import releases
from weavegen.version import __version__

CARD = "README.md"
SIMULATED = "SIMULATED MODEL DATA"
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "n>1B")
"""The hub's size categories, each ten times the one before."""


@dataclass
class Origin:
    """Where the rows of an export come from."""

    models: set[str] = field(default_factory=set)
    unnamed: bool = False
    """Some jobs named no model and used the only one of their servers."""
    versions: set[str] = field(default_factory=set)
    bootstraps: set[str] = field(default_factory=set)

    def simulated(self, simulation: bool) -> bool:
        """Whether the simulated model wrote some of it. `simulation`: jobs that name no model use it here."""
        return SIMULATED_MODEL in self.models or (self.unnamed and simulation)


def read_origin(conn: Connection, traces: Iterable[int]) -> Origin:
    """Read where these traces come from."""
    origin = Origin()
    for row in releases.about(conn, "exports/origin", traces):
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
    remarks: list[str]
    """Further remarks about the rows, in sentences."""
    totals: dict[str, int]
    """Figures of the format, by name."""
    origin: Origin
    simulated: bool


@cache
def template(name: str) -> jinja2.Template:
    """The Markdown template with this name. It has no markup to escape."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)


def card(format: Format, where: str | None, limit: int | None, options: dict[str, Any], written: Written) -> str:
    """The text of README.md. It is the same as long as the corpus is."""
    total = sum(written.rows.values())
    hashes = "".join(f"{written.sha256[name]}  {name}\n" for name in sorted(written.sha256))
    unnamed = ["the only one of the job's servers (for jobs that named none)"] if written.origin.unnamed else []
    return template("card.md").render(
        format=format,
        columns=comments(format.schema) if isinstance(format, RowFormat) else {},
        condition=code(where) if where else None,
        limit=limit,
        options=options,
        written=written,
        digest=f"sha256-{hashlib.sha256(hashes.encode()).hexdigest()}",
        size=next(size for power, size in enumerate(SIZES, 3) if total < 10**power or size == SIZES[-1]),
        models=sorted(written.origin.models) + unnamed,
        version=__version__,
        simulated=SIMULATED,
        simulated_model=SIMULATED_MODEL,
    )


def code(text: str) -> str:
    """A user's text as Markdown code on one line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"
