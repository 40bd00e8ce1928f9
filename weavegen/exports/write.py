"""Exporting: select rows, write the files of each split and the card. The folder appears whole or not at all."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.exports.card import CARD, Written, card, read_origin
from weavegen.exports.folder import file_sha256, new_folder
from weavegen.exports.format import Format, Key, Options, Source
from weavegen.exports.selection import SELECT_SECONDS, Selection, select, split_of
from weavegen.exports.shards import SplitWriter, split_writer

SHARD_BYTES = 500_000_000

Progress = Callable[[int, int], None]
"""Called after each row of the view with the number of rows that are done, and the number of all."""


@dataclass(frozen=True)
class Export:
    """What to export, and where to."""

    format: Format
    out: Path
    where: str | None = None
    splits: dict[str, float] = field(default_factory=lambda: {"train": 1.0})
    """Shares, see selection.read_splits."""
    limit: int | None = None
    """Export only the first rows of the view, at most so many."""
    options: Options = field(default_factory=Options)
    shard_bytes: int = SHARD_BYTES
    """A shard ends when it has so many bytes."""
    seconds: float = SELECT_SECONDS
    """Time limit of the condition."""
    simulation: bool = False
    """Jobs that name no model used the simulated one."""
    extra: Callable[[Path, Written], None] | None = None
    """Called before the folder gets its name, to add further files such as a manifest."""


def export(
    conn: sa.Connection, wanted: Export, *, keys: Selection | None = None, progress: Progress | None = None
) -> Written:
    """Write the folder `wanted.out`, which must not exist.

    `keys` are the rows to write, in the order of their traces, instead of those that the condition selects. Raises
    UsageError where the export cannot begin and WeavegenError where it fails; then no folder is left.
    """
    with new_folder(wanted.out) as folder, reading(conn) as own, contextlib.ExitStack() as stack:
        chosen = keys or stack.enter_context(contextlib.closing(selected(own, wanted, folder)))
        if not chosen.count:
            raise UsageError(f"no row of the view {wanted.format.view} matches: nothing to export")
        written = write_splits(own, wanted, chosen, folder, progress or (lambda done, count: None))
        if not sum(written.rows.values()):
            raise all_left_out(chosen, written.left_out)
        (folder / CARD).write_text(
            card(wanted.format, wanted.where, wanted.limit, dict(vars(wanted.options)), written)
        )
        if wanted.extra is not None:
            wanted.extra(folder, written)
    return written


def preview(conn: sa.Connection, wanted: Export) -> dict[str, dict[str, int]]:
    """Count the rows and traces that an export would take, by split. Raises UsageError."""
    rows = dict.fromkeys(wanted.splits, 0)
    traces = dict.fromkeys(wanted.splits, 0)
    with reading(conn) as own, contextlib.closing(selected(own, wanted)) as chosen:
        for trace, keys in chosen.traces():
            split = split_of(own, trace, wanted.splits)
            rows[split] += sum(1 for _ in keys)
            traces[split] += 1
    return {"rows": rows, "traces": traces}


@contextlib.contextmanager
def reading(conn: sa.Connection) -> Iterator[sa.Connection]:
    """Another connection to the same database, on which every statement is its own transaction."""
    with conn.engine.connect() as own:
        yield own.execution_options(isolation_level="AUTOCOMMIT")


def selected(conn: sa.Connection, wanted: Export, folder: Path | None = None) -> Selection:
    """The rows that the condition selects."""
    return select(
        conn, wanted.format, wanted.where, wanted.options,
        limit=wanted.limit, seconds=wanted.seconds, folder=folder,
    )  # fmt: skip


def all_left_out(chosen: Selection, left_out: dict[str, int]) -> UsageError:
    """The error of an export that has nothing to write."""
    reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(left_out.items()))
    return UsageError(f"all {chosen.count} rows were left out: {reasons}")


def write_splits(
    conn: sa.Connection, wanted: Export, chosen: Selection, folder: Path, progress: Progress
) -> Written:
    """Write the files of all splits."""
    source = Source(conn, wanted.options)
    writers = {split: split_writer(wanted.format, folder, split, wanted.shard_bytes) for split in wanted.splits}
    traces: Counter[str] = Counter()
    done = 0

    def counted(keys: Iterator[Key]) -> Iterator[Key]:
        nonlocal done
        for key in keys:
            yield key
            done += 1
            progress(done, chosen.count)

    try:
        for trace, keys in chosen.traces():
            split = split_of(conn, trace, wanted.splits)
            traces[split] += write_trace(writers[split], source, trace, counted(keys))
        paths = [path for writer in writers.values() for path in writer.close()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    origin = read_origin(conn, (trace for trace, _ in chosen.traces()))
    return Written(
        rows={split: writer.rows for split, writer in writers.items()},
        traces={split: traces[split] for split in writers},
        files=[str(path.relative_to(folder)) for path in paths],
        sha256={str(path.relative_to(folder)): file_sha256(path) for path in paths},
        text_bytes=sum(writer.text_bytes for writer in writers.values()),
        bytes=sum(path.stat().st_size for path in paths),
        left_out=dict(source.left_out),
        notes=dict(source.notes),
        origin=origin,
        simulated=origin.simulated(wanted.simulation),
    )


def write_trace(writer: SplitWriter, source: Source, trace: int, keys: Iterator[Key]) -> bool:
    """Write a trace. Returns whether it has any rows."""
    before = writer.rows
    writer.add(source, trace, keys)
    for _ in keys:  # formats of whole traces do not consume the keys
        pass
    return writer.rows > before
