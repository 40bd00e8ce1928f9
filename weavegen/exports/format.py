"""What a format is: a view whose rows it takes, and how it writes each of them. formats.toml declares the formats."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.kernel.template import Template

Key = tuple[int, ...]
"""Identifies a row of a format's view. The trace's id comes first."""
Row = dict[str, Any]
"""A value for each column of the schema."""
TRACE_GONE = "the trace is gone"


@dataclass(frozen=True)
class Options:
    """Options of single formats. None: not given."""

    context: int | None = None
    """Maximum tokens of a text. Longer traces are cut between blocks."""
    context_bytes: int | None = None
    """Maximum bytes (UTF-8) of a text."""
    per_block: int | None = None
    """Maximum rows per block. The most informative come first."""
    per_text: int | None = None
    """Maximum rows with equal texts. The first of the view are kept."""
    min_margin: float | None = None
    """Minimum difference in value of two texts whose outcomes do not differ."""
    student: Path | None = None
    """Folder of the model that is to learn (student.py)."""


@dataclass
class Source:
    """What a format reads from. It also counts the rows that are left out, and the remarks about written rows."""

    conn: Connection
    """Each statement sees the newest commits: an export that takes hours holds no snapshot."""
    options: Options = field(default_factory=Options)
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that were not written, by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """Rows that the card makes a remark about, by remark."""
    template: Template | None = None
    """Chat template of the prompts; None: the one that the writer read."""
    count: int = 0
    """Rows of the view that the export takes."""
    split: str = ""
    """The split that the rows go to."""
    kept: dict[str, Any] = field(default_factory=dict)
    """What a format keeps from one trace to the next, by split."""
    labels: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """Written labels: where each comes from, which may be empty, and the label."""
    totals: Counter[str] = field(default_factory=Counter)
    """Figures of the whole export, by name."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format that `weavegen export` writes. It takes the rows of a view, so SQL shows what will be exported."""

    name: str
    about: str
    """One line: what a row is, and who reads it."""
    view: str
    """--where is a condition over its columns."""
    key: tuple[str, ...]
    """Integer columns of the view that identify a row, `trace_id` first. Rows are written in their order."""
    takes: frozenset[str] = frozenset()
    """Names of the fields of Options that apply to it."""
    evaluator: bool = False
    """Whether its rows hold the evaluator's opinion: values, or answers."""
    narrow: Callable[[Options], str] = lambda options: "true"
    """The condition over the view that follows from the options; by default all rows."""
    weak: Callable[[Options], tuple[str, str] | None] = lambda options: None
    """The condition over the view for rows that are counted and left out, and the reason."""
    tells: Callable[[Mapping[str, int]], str] = lambda totals: ""
    """What the card and the command say of Source.totals, in one sentence; empty: nothing."""

    def check(self, options: Options) -> None:
        """Raise UsageError where an option does not apply to this format."""
        for name, value in vars(options).items():
            if value is not None and name not in self.takes:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} does not apply to the format {self.name}: leave it out")


RowMaker = Callable[[Source, int, Iterator[Key]], Iterator[Row]]


@dataclass(frozen=True, kw_only=True)
class RowFormat(Format):
    """A format of rows, written as Parquet or as JSON lines."""

    schema: pa.Schema
    """Its columns. The metadata of each has its meaning, see `comments`."""
    texts: Sequence[str] = ()
    """Columns with what the model wrote: rows with equal ones repeat each other. None: repetition is not counted."""
    label: str = ""
    """Column of a label, or of a list of labels; empty: none. The column `source`, if any, says where it comes from."""
    rows: RowMaker
    """Makes the rows of a trace in the order of the keys, which it may consume lazily. One key may give several
    rows. It gives none if its row is gone or lacks something; that is counted in Source.left_out."""
    layout: Literal["parquet", "jsonl"] = "parquet"


MANY_FILES = 5_000
"""From this many on, the files of traces are in subfolders by thousands: on the hub a folder can't have 10,000."""
File = tuple[str, Iterable[str]]
"""A file: its path in the folder of its split, and the parts of its text."""


@dataclass(frozen=True, kw_only=True)
class FileFormat(Format):
    """A format with files for each trace."""

    path: str
    """Where the files of a trace are in the folder of its split, for the card."""
    files: Callable[[Source, int], Iterator[File]]
    """The files of a trace. There are none if the trace is left out."""
    loaded: bool = False
    """Whether `datasets` and the viewer of the hub read the files as they are."""


DECLARED = tomllib.loads((Path(__file__).parent / "formats.toml").read_text())
"""The tables of formats.toml: one for each format, and `columns`."""


def declared(name: str) -> dict[str, Any]:
    """What formats.toml says about a format: arguments of Format, or of RowFormat where it has columns."""
    values = {"name": name, "takes": (), **DECLARED[name]}
    names, meanings = values.pop("columns", ()), DECLARED["columns"] | values.pop("own", {})
    if names:
        values["schema"] = pa.schema([column(name, *meanings[name]) for name in names])
    return values | {"key": tuple(values["key"]), "takes": frozenset(values["takes"])}


def file_per_trace(name: str, suffix: str, text: Callable[[Source, int], Iterator[str]], **values: Any) -> FileFormat:
    """A format with one file for each trace, whose parts `text` gives."""

    def files(source: Source, id: int) -> Iterator[File]:
        folder = f"{id // 1000}000/" if source.count >= MANY_FILES else ""
        yield f"{folder}trace-{id}.{suffix}", text(source, id)

    return FileFormat(path=f"trace-ID.{suffix}", files=files, **declared(name), **values)


def column(name: str, type: Any, meaning: str) -> pa.Field:
    """A column of a schema. `type`: as in formats.toml."""
    return pa.field(name, arrow_type(type), metadata={"comment": meaning})


def arrow_type(type: Any) -> pa.DataType:
    """The type with this name; of [type] a list; of {name: type} a struct."""
    if isinstance(type, list):
        return pa.list_(arrow_type(*type))
    if isinstance(type, dict):
        return pa.struct({name: arrow_type(inner) for name, inner in type.items()})
    return pa.type_for_alias(type)


def comments(schema: pa.Schema) -> dict[str, str]:
    """The descriptions of a schema's columns."""
    return {field.name: (field.metadata or {}).get(b"comment", b"").decode() for field in schema}
