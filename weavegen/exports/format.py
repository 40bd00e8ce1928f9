"""What a format is: a view whose rows it takes, and how each of them is written."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import sqlalchemy as sa

from weavegen.errors import UsageError

Key = tuple[int, ...]
"""What identifies a row of a format's view: the trace's id first."""
Row = dict[str, Any]
"""A value for each field of the schema."""


@dataclass(frozen=True)
class Options:
    """What a user may say about some formats. None: not said."""

    context: int | None = None
    """Tokens of a text at most: whole traces are cut between blocks."""
    context_bytes: int | None = None
    """The same in bytes of UTF-8."""
    per_block: int | None = None
    """Rows of one block at most, the most telling first."""


@dataclass
class Source:
    """What a format reads from, and what it has to say about it."""

    conn: sa.Connection
    """Each statement sees the newest commits: an export of hours holds no snapshot."""
    options: Options = field(default_factory=Options)
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows that were not written, by reason."""
    notes: Counter[str] = field(default_factory=Counter)
    """What readers of the card must know of some rows, and of how many."""

    def leave_out(self, reason: str, rows: int = 1) -> None:
        """Say that rows of the view are not written: what they need is not recorded, for example."""
        self.left_out[reason] += rows

    def note(self, what: str) -> None:
        """Say something about the row that is being written."""
        self.notes[what] += 1


def everything(options: Options) -> str:
    """The condition of formats that always take all rows of their view."""
    return "true"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format that `weavegen export` writes. Its rows are those of a view, so SQL users see the same ones."""

    name: str
    about: str
    """What a row is, and who reads it: one line."""
    view: str
    """What --where is a condition over."""
    key: tuple[str, ...]
    """Columns of the view that identify a row, whole numbers. `trace_id` first; rows come in their order."""
    takes: frozenset[str] = frozenset()
    """Names of the fields of Options that it understands."""
    narrow: Callable[[Options], str] = everything
    """The condition over the view that its options amount to."""

    def check(self, options: Options) -> None:
        """Raise UsageError where an option says nothing about this format."""
        for name, value in vars(options).items():
            if value is not None and name not in self.takes:
                raise UsageError(
                    f"--{name.replace('_', '-')} says nothing about the format {self.name}: leave it out"
                )


@dataclass(frozen=True, kw_only=True)
class RowFormat(Format):
    """A format of rows: Parquet, or one JSON object a line."""

    schema: pa.Schema
    """Its columns, made by `column`."""
    rows: Callable[[Source, int, Iterator[Key]], Iterator[Row]]
    """Rows of one trace, in the order of their keys, which may be taken little by little. A key whose row is gone,
    or lacks what it takes, gives none: see Source.leave_out. One key may give several rows."""
    layout: Literal["parquet", "jsonl"] = "parquet"


@dataclass(frozen=True, kw_only=True)
class FileFormat(Format):
    """A format of files, one for each trace: `trace-ID.SUFFIX`."""

    suffix: str
    text: Callable[[Source, int], Iterator[str]]
    """The file's text, in pieces."""


def column(name: str, type: pa.DataType, comment: str) -> pa.Field:
    """A column of a schema, with what it means."""
    return pa.field(name, type, metadata={"comment": comment})


def comments(schema: pa.Schema) -> dict[str, str]:
    """What the columns of a schema mean."""
    return {one.name: (one.metadata or {}).get(b"comment", b"").decode() for one in schema}
