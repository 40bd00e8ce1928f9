"""Exporting: select rows, write the files of each split and the card. The folder appears whole or not at all."""

import contextlib
import hashlib
import itertools
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.exports.card import CARD, Written, card, read_origin
from weavegen.exports.folder import file_sha256, new_folder
from weavegen.exports.format import TRACE_GONE, Format, Key, Options, Source
from weavegen.exports.shards import split_writer
from weavegen.exports.tally import checks, remarks_of, tallied
from weavegen.store import reports

SHARD_BYTES = 500_000_000
PAGE_KEYS = 4096
"""Keys read from the disk at a time."""

Progress = Callable[[int, int], None]
"""Called after each row of the view with the number of rows that are done, and the number of all."""


@dataclass(frozen=True)
class Export:
    """What to export, and where to."""

    format: Format
    out: Path
    where: str | None = None
    splits: dict[str, float] = field(default_factory=lambda: {"train": 1.0})
    """Shares, see read_splits."""
    limit: int | None = None
    """Export only the first rows of the view, at most this many."""
    options: Options = field(default_factory=Options)
    shard_bytes: int = SHARD_BYTES
    """A shard ends when it has this many bytes."""
    seconds: float = 600.0
    """Time limit of the condition."""
    simulation: bool = False
    """Whether jobs that name no model used the simulated one."""
    extra: Callable[[Path, Written], None] | None = None
    """Called before the folder gets its name, to add further files such as a manifest."""


class NothingToExport(UsageError):
    """No row matches, or all of them are left out."""

    def __init__(self, format: Format, left_out: dict[str, int]) -> None:
        reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(left_out.items()))
        nothing = f"no row of the view {format.view} matches: nothing to export"
        super().__init__(f"all {sum(left_out.values())} rows were left out: {reasons}" if reasons else nothing)


class Selection:
    """Keys in order, kept on the disk: any number of them in constant memory."""

    def __init__(self, keys: Iterable[Key], width: int, folder: Path | None = None) -> None:
        """Store `keys`, of `width` integers each, in an unnamed file in `folder`."""
        self.count = 0
        self.left_out: Counter[str] = Counter()
        """Rows that the format leaves out, by reason."""
        self.checks: list[str] | None = None
        """How the evaluator was checked, see `tally.checks`; None: not read yet."""
        self._struct = struct.Struct(f"<{width}q")
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as this object)
        try:
            for key in keys:
                self._file.write(self._struct.pack(*key))
                self.count += 1
            self._file.flush()
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Key]:
        self._file.seek(0)
        while page := self._file.read(PAGE_KEYS * self._struct.size):
            yield from self._struct.iter_unpack(page)

    def traces(self) -> Iterator[tuple[int, Iterator[Key]]]:
        """Each trace with its keys."""
        return itertools.groupby(self, lambda key: key[0])

    def ids(self) -> Iterator[int]:
        """The traces' ids."""
        return (trace for trace, _ in self.traces())

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


def export(
    conn: Connection, order: Export, *, keys: Selection | None = None, progress: Progress | None = None
) -> Written:
    """Write the folder `order.out`, which must not exist.

    `keys` are the rows to write, in the order of their traces, instead of those that the condition selects. Raises
    UsageError where the export cannot begin and WeavegenError where it fails; then no folder is left.
    """
    with new_folder(order.out) as folder, reading(conn) as own, contextlib.ExitStack() as stack:
        selection = keys or stack.enter_context(contextlib.closing(selected(own, order, folder)))
        if not selection.count:
            raise NothingToExport(order.format, selection.left_out)
        order = replace(order, format=stack.enter_context(tallied(order.format)))
        written = write_splits(own, order, selection, folder, progress or (lambda done, count: None))
        if not sum(written.rows.values()):
            raise NothingToExport(order.format, written.left_out)
        (folder / CARD).write_text(card(order.format, order.where, order.limit, dict(vars(order.options)), written))
        if order.extra is not None:
            order.extra(folder, written)
    return written


def preview(conn: Connection, order: Export) -> dict[str, dict[str, int]]:
    """Count the rows and traces that an export would take, by split. Raises UsageError."""
    rows = dict.fromkeys(order.splits, 0)
    traces = dict.fromkeys(order.splits, 0)
    with reading(conn) as own, contextlib.closing(selected(own, order)) as selection:
        for trace, keys in selection.traces():
            try:
                split = split_of(own, trace, order.splits)
            except LookupError:  # it is gone
                continue
            rows[split] += sum(1 for _ in keys)
            traces[split] += 1
    return {"rows": rows, "traces": traces}


def reading(conn: Connection) -> contextlib.AbstractContextManager[Connection]:
    """Another connection to the same database, on which every statement is its own transaction."""
    return conn.database.with_autocommit(True).connect()


def selected(conn: Connection, order: Export, folder: Path | None = None) -> Selection:
    """The keys of the rows of the format's view that match the user's condition; in a file in `folder`.

    The condition runs under the read-only role, for at most `order.seconds`. Raises UsageError for a bad condition.
    """
    format, where = order.format, order.where
    format.check(order.options)
    keys = ", ".join(format.key)
    condition, reason = format.weak(order.options) or ("false", "")
    statement = reports.narrowed(
        f"select ({condition})::int, {keys} from {format.view} where {format.narrow(order.options)}",
        where or None,
        f"order by {keys}" + (f" limit {order.limit:d}" if order.limit is not None and not reason else ""),
    )
    left_out: Counter[str] = Counter()

    def strong(rows: Iterable[Key]) -> Iterator[Key]:
        for is_weak, *key in rows:
            if is_weak:
                left_out[reason] += 1
            else:
                yield tuple(key)

    try:
        with reports.answer(conn, statement, order.seconds) as (_, rows):
            selection = Selection(itertools.islice(strong(rows), order.limit), len(format.key), folder)
            selection.left_out = left_out
            return selection
    except struct.error:
        raise UsageError("--where is not a condition: give one over the columns of the view") from None
    except UsageError as error:
        if where is None:
            raise
        hint = "give it more time with --seconds" if "statement timeout" in str(error) else "see export --list"
        raise UsageError(f"--where, over the view {format.view}: {error} ({hint})") from None


def read_splits(text: str) -> dict[str, float]:
    """Read shares such as `train=0.95,test=0.05`, scaled to a sum of 1. Raises UsageError."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not (name.isidentifier() and 0 < share < 1e9) or name in shares:
            raise UsageError(f"--split {text!r} can't be read: give it like train=0.95,test=0.05")
        shares[name] = share
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def split_of(conn: Connection, trace_id: int, splits: dict[str, float]) -> str:
    """The split of a trace, by a hash of its job and number: the same in every export.

    Retries and forks go to the split of the trace that they come from, because their texts may be the same, and
    delegates to that of their caller, which reads what they found. Raises LookupError where the trace is gone.
    """
    names = list(splits)
    _, job, number = sql.run(conn, "exports/root-trace", trace=trace_id, callers=True).one()
    point = int.from_bytes(hashlib.sha256(f"{job}/{number}".encode()).digest()[:6], "big") / 2**48
    for name in names[:-1]:
        point -= splits[name]
        if point < 0:
            return name
    return names[-1]


def write_splits(conn: Connection, order: Export, selection: Selection, folder: Path, progress: Progress) -> Written:
    """Write the files of all splits."""
    source = Source(conn, order.options, count=selection.count)
    writers = {split: split_writer(order.format, folder, split, order.shard_bytes) for split in order.splits}
    traces: Counter[str] = Counter()
    done = 0

    def counted(keys: Iterator[Key]) -> Iterator[Key]:
        nonlocal done
        for key in keys:
            yield key
            done += 1
            progress(done, selection.count)

    try:
        for trace, keys in selection.traces():
            keys = counted(keys)
            try:
                split = source.split = split_of(conn, trace, order.splits)
            except LookupError:
                source.left_out[TRACE_GONE] += sum(1 for _ in keys)
                continue
            before = writers[split].rows
            writers[split].add(source, trace, keys)
            for _ in keys:  # formats of whole traces do not consume the keys
                pass
            traces[split] += writers[split].rows > before
        paths = [path for writer in writers.values() for path in writer.close()]
    except BaseException:
        for writer in writers.values():
            writer.abandon()
        raise
    origin = read_origin(conn, selection.ids())
    if order.format.evaluator and selection.checks is None:
        selection.checks = checks(conn, selection.ids())
    remarks = [*remarks_of(source), *(selection.checks or ()), *filter(None, [order.format.tells(source.totals)])]
    return Written(
        rows={split: writer.rows for split, writer in writers.items()},
        traces={split: traces[split] for split in writers},
        files=[str(path.relative_to(folder)) for path in paths],
        sha256={str(path.relative_to(folder)): file_sha256(path) for path in paths},
        text_bytes=sum(writer.text_bytes for writer in writers.values()),
        bytes=sum(path.stat().st_size for path in paths),
        left_out=dict(source.left_out + selection.left_out),
        remarks=remarks,
        totals=dict(source.totals),
        origin=origin,
        simulated=origin.simulated(order.simulation),
    )
