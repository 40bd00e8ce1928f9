"""An export from the condition to the folder: whole, or not there at all."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa

from weavegen.errors import UsageError, WeavegenError
from weavegen.exports.card import Origin, Written, card
from weavegen.exports.format import FileFormat, Format, Key, Options, RowFormat, Source
from weavegen.exports.selection import Selection, select, split_of
from weavegen.exports.shards import LAYOUTS, Shards

MARK = ".weavegen-export"
"""In a folder that an export is writing, so that what is left of a killed one is known."""
SHARD = 500_000_000
SECONDS = 600.0
"""That a condition may take."""
TRACES_AT_ONCE = 500
"""Whose origin is asked for together."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

Progress = Callable[[int, int], None]
"""Told after each row of the view: how many are done, of how many."""


@dataclass(frozen=True)
class Export:
    """What is to be exported, and where to."""

    format: Format
    out: Path
    where: str | None = None
    splits: dict[str, float] = field(default_factory=lambda: {"train": 1.0})
    """Shares, see selection.read_splits."""
    limit: int | None = None
    """Rows of the view at most, the first ones."""
    options: Options = field(default_factory=Options)
    shard_bytes: int = SHARD
    """A shard ends when it has so many bytes."""
    seconds: float = SECONDS
    """That the condition may take."""
    simulation: bool = False
    """Jobs that name no model used the simulated one."""
    extra: Callable[[Path, Written], None] | None = None
    """Called before the folder gets its name: what else is to lie in it, such as a manifest."""


def export(
    conn: sa.Connection, wanted: Export, *, keys: Selection | None = None, progress: Progress | None = None
) -> Written:
    """Write the folder `wanted.out`, which must not be there.

    `keys`: rows known before, in order of their traces, in place of a condition. Raises UsageError where it can't
    be begun, WeavegenError where it can't be ended; in both cases no folder is left.
    """
    with folder(wanted.out) as part, reading(conn) as own, contextlib.ExitStack() as stack:
        chosen = keys or stack.enter_context(contextlib.closing(selected(own, wanted, part)))
        if not chosen.count:
            raise UsageError(f"no row of the view {wanted.format.view} matches: nothing to export")
        written = write(own, wanted, chosen, part, progress or (lambda done, count: None))
        if not sum(written.rows.values()):
            reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(written.left_out.items()))
            raise UsageError(f"all {chosen.count} rows were left out: {reasons}")
        text = card(wanted.format, wanted.where, wanted.limit, dict(vars(wanted.options)), written)
        (part / "README.md").write_text(text)
        if wanted.extra is not None:
            wanted.extra(part, written)
    return written


def selected(conn: sa.Connection, wanted: Export, folder: Path | None = None) -> Selection:
    """The rows that its condition holds for."""
    return select(
        conn, wanted.format, wanted.where, wanted.options,
        limit=wanted.limit, seconds=wanted.seconds, folder=folder,
    )  # fmt: skip


@contextlib.contextmanager
def reading(conn: sa.Connection) -> Iterator[sa.Connection]:
    """A connection of its own to the same database, on which every statement is by itself."""
    with conn.engine.connect() as own:
        yield own.execution_options(isolation_level="AUTOCOMMIT")


@contextlib.contextmanager
def folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` to write in, which gets its name at the end; whatever goes wrong, it is removed."""
    part = out.with_name(out.name + ".part")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} is there already: give --out a folder that is not, or remove it")
    try:
        part.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{part} can't be made: {error.strerror}; give another --out") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another export writes to {part}: wait for it, or give another --out") from None
        if any(part.iterdir()) and not (part / MARK).exists():
            raise UsageError(f"{part} is in the way and was not made by an export: move it, or give another --out")
        try:
            clear(part)
            (part / MARK).touch()
            yield part
            settle(part)
            part.rename(out)
            (out / MARK).unlink()
            sync(out.absolute().parent)
        except BaseException as error:
            left = removed(part)
            if (said := understood(error, out, left)) is not None:
                raise said from None
            raise
    finally:
        os.close(handle)


def clear(part: Path) -> None:
    """Remove what a killed export left."""
    for path in part.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def removed(part: Path) -> str:
    """Remove it; says what is left."""
    shutil.rmtree(part, ignore_errors=True)
    return f"{part} could not be removed: it is not whole" if part.exists() else "nothing is left of it"


def understood(error: BaseException, out: Path, left: str) -> WeavegenError | None:
    """An error as the user should read it; None: as it is."""
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return WeavegenError(f"{out} was not written: {error.strerror}; {left}. Give --out a disk with more room")
    if isinstance(error, OSError):
        return WeavegenError(f"{out} was not written: {error}; {left}")
    if isinstance(error, sa.exc.DBAPIError | psycopg.Error):
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        said = " ".join(str(reason).split())[:300]
        return WeavegenError(f"{out} was not written, the database failed: {said}; {left}. Try again")
    return None


def settle(part: Path) -> None:
    """See all that lies in the folder on the disk."""
    for place, _, names in os.walk(part, topdown=False):
        for name in names:
            sync(Path(place, name))
        sync(Path(place))


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(conn: sa.Connection, wanted: Export, chosen: Selection, part: Path, progress: Progress) -> Written:
    """The files of all splits. Holds a row group of each split, and what the format keeps of one trace."""
    source, origin = Source(conn, wanted.options), Origin()
    rows: Counter[str] = Counter()
    traces: Counter[str] = Counter()
    writers = {name: sink(wanted, part, name) for name in wanted.splits}
    waiting: list[int] = []
    done = 0
    try:
        for trace, keys in chosen.traces():
            split = split_of(conn, trace, wanted.splits)
            waiting.append(trace)
            if len(waiting) >= TRACES_AT_ONCE:
                origin.add(conn, waiting)
                waiting.clear()
            before = writers[split].count

            def counted(keys: Iterator[Key] = keys) -> Iterator[Key]:
                nonlocal done
                for key in keys:
                    yield key
                    done += 1
                    progress(done, chosen.count)

            keys = counted()
            writers[split].trace(source, trace, keys)
            for _ in keys:  # those that the format had no use for
                pass
            traces[split] += writers[split].count > before
        origin.add(conn, waiting)
        paths = [path for writer in writers.values() for path in writer.close()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    for name, writer in writers.items():
        rows[name] = writer.count
    return Written(
        rows={name: rows[name] for name in wanted.splits},
        traces={name: traces[name] for name in wanted.splits},
        files=[str(path.relative_to(part)) for path in paths],
        sha256={str(path.relative_to(part)): sha256(path) for path in paths},
        text_bytes=sum(writer.text for writer in writers.values()),
        bytes=sum(path.stat().st_size for path in paths),
        left_out=dict(source.left_out),
        notes=dict(source.notes),
        origin=origin,
        simulated=origin.simulated(wanted.simulation),
    )


def sha256(path: Path) -> str:
    """Of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class RowSink:
    """The rows of a split."""

    def __init__(self, format: RowFormat, shards: Shards) -> None:
        self._format, self._shards = format, shards
        self.count = 0

    @property
    def text(self) -> int:
        return self._shards.text

    def trace(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        for row in self._format.rows(source, trace, keys):
            self._shards.write(row)
            self.count += 1

    def close(self) -> list[Path]:
        return self._shards.close()

    def abandon(self) -> None:
        self._shards.abandon()


class FileSink:
    """The files of a split, one a trace."""

    def __init__(self, format: FileFormat, folder: Path) -> None:
        self._format, self._folder = format, folder
        self._paths: list[Path] = []
        self.count = self.text = 0

    def trace(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        path = self._folder / f"trace-{trace}.{self._format.suffix}"
        with path.open("x", encoding="utf-8") as file:
            for text in self._format.text(source, trace):
                file.write(text)
                self.text += len(text)
        self._paths.append(path)
        self.count += 1

    def close(self) -> list[Path]:
        return self._paths

    def abandon(self) -> None:
        pass


def sink(wanted: Export, part: Path, split: str) -> RowSink | FileSink:
    """What takes the traces of a split."""
    place = part / ("data" if isinstance(wanted.format, RowFormat) else split)
    place.mkdir(exist_ok=True)
    if isinstance(wanted.format, RowFormat):
        shards = LAYOUTS[wanted.format.layout](place, split, wanted.format, wanted.shard_bytes)
        return RowSink(wanted.format, shards)
    assert isinstance(wanted.format, FileFormat)
    return FileSink(wanted.format, place)


def preview(conn: sa.Connection, wanted: Export) -> dict[str, Any]:
    """What an export would take: rows of its view and traces, by split. Writes nothing. Raises UsageError."""
    rows: Counter[str] = Counter()
    traces: Counter[str] = Counter()
    with reading(conn) as own, contextlib.closing(selected(own, wanted)) as chosen:
        for trace, keys in chosen.traces():
            split = split_of(own, trace, wanted.splits)
            rows[split] += sum(1 for _ in keys)
            traces[split] += 1
    return {
        "rows": {name: rows[name] for name in wanted.splits},
        "traces": {name: traces[name] for name in wanted.splits},
    }
