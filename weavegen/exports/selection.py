"""Selecting the rows of an export: a user's condition becomes keys, which are then only looked up."""

import hashlib
import itertools
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import sqlalchemy as sa

from weavegen import sql
from weavegen.errors import UsageError
from weavegen.exports.format import Format, Key, Options
from weavegen.store import reports

SELECT_SECONDS = 600.0
"""Default time limit of a condition."""
PAGE_KEYS = 4096
"""Keys read from the disk at a time."""


class Selection:
    """Keys in order, kept on the disk: any number of them in constant memory."""

    def __init__(self, keys: Iterable[Key], width: int, folder: Path | None = None) -> None:
        """Store `keys`, of `width` integers each, in an unnamed file in `folder`."""
        self.count = 0
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

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


def select(
    conn: sa.Connection,
    format: Format,
    where: str | None,
    options: Options,
    *,
    limit: int | None = None,
    seconds: float,
    folder: Path | None = None,
) -> Selection:
    """The keys of the rows of a format's view that match a user's condition.

    The condition runs under the read-only role, for at most `seconds`. Raises UsageError for a bad condition.
    """
    format.check(options)
    keys = ", ".join(format.key)
    statement = reports.narrowed(
        f"select {keys} from {format.view} where {format.narrow(options)}",
        where or None,
        f"order by {keys}" + (f" limit {limit:d}" if limit is not None else ""),
    )
    try:
        with reports.answer(conn, statement, seconds) as (_, rows):
            return Selection(rows, len(format.key), folder)
    except struct.error:
        raise UsageError("--where is no condition: give one over the columns of the view") from None
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


def split_of(conn: sa.Connection, trace_id: int, splits: dict[str, float]) -> str:
    """The split of a trace, by a hash of its job and number: the same in every export.

    Retries and forks go to the split of the trace that they come from, because their texts may be the same.
    """
    names = list(splits)
    if len(names) == 1:
        return names[0]
    job, number = conn.execute(sql.load("exports/root-trace"), {"trace": trace_id}).one()
    point = int.from_bytes(hashlib.sha256(f"{job}/{number}".encode()).digest()[:6], "big") / 2**48
    for name in names[:-1]:
        point -= splits[name]
        if point < 0:
            return name
    return names[-1]
