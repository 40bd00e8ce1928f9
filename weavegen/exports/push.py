"""Groups sent to a running Atropos server, in place of a folder: `weavegen export --format atropos --push URL`.

The server keeps its queue in memory until its trainer takes a batch, so no more than a few hundred groups are put
there ahead. A group whose answer was lost is sent again: it may then be there twice.
"""

import contextlib
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec
import sqlalchemy as sa

from weavegen.config import NO_KEY
from weavegen.errors import ModelError, TransientError, UsageError, WeavegenError
from weavegen.exports.format import Row, RowFormat, Source
from weavegen.exports.write import Export, Progress, reading, selected
from weavegen.pool.http import Http

TIMEOUT = 60.0
"""Seconds that the server may take for an answer."""
TRIES = 6
"""Of a request; between them it waits for 0.5, 1, 2, 4, 8 seconds."""
AHEAD = 256
"""Groups that may wait in the server's queue."""
LOOK = 32
"""Groups after which the queue is looked at."""


class Info(msgspec.Struct):
    """What a server says of its trainer; -1: none has registered."""

    batch_size: int = -1
    max_token_len: int = -1


class Status(msgspec.Struct):
    """What waits in a server."""

    queue_size: int = 0


class Taken(msgspec.Struct):
    """The answer to a group."""

    status: str


@dataclass
class Pushed:
    """What was sent."""

    groups: int = 0
    sequences: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


def push(conn: sa.Connection, wanted: Export, url: str, progress: Progress | None = None) -> Pushed:
    """Send what an export would write. Raises UsageError where it can't begin, WeavegenError where it fails."""
    server = Server(url)
    assert isinstance(wanted.format, RowFormat)
    pushed = Pushed()
    with contextlib.closing(server), reading(conn) as own, contextlib.closing(selected(own, wanted)) as chosen:
        if not chosen.count:
            raise UsageError(f"no row of the view {wanted.format.view} matches: nothing to send")
        source, done = Source(own, wanted.options), 0
        for trace, keys in chosen.traces():
            for row in wanted.format.rows(source, trace, keys):
                done += 1
                if (reason := server.unfit(row)) is not None:
                    source.leave_out(reason)
                    continue
                server.send(row)
                pushed.groups += 1
                pushed.sequences += len(row["tokens"])
                if progress is not None:
                    progress(done, chosen.count)
        pushed.left_out, pushed.notes = dict(source.left_out), dict(source.notes)
    if not pushed.groups:
        reasons = "; ".join(f"{count}: {reason}" for reason, count in sorted(pushed.left_out.items()))
        raise UsageError(f"all {chosen.count} rows were left out: {reasons}")
    return pushed


class Server:
    """A running server that a trainer has registered with."""

    def __init__(self, url: str) -> None:
        """Raises UsageError where there is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--push {url!r:.200}: give the server's address, such as http://localhost:8000")
        self._url = url.rstrip("/")
        self._http = Http(NO_KEY, TIMEOUT)
        self._sent = 0
        try:
            self._info = msgspec.json.decode(self._http.get(self._url + "/info"), type=Info)
        except (ModelError, TransientError) as error:
            raise UsageError(f"--push: {error}: start the server (run-api) first") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UsageError(f"--push: {self._url} is no Atropos server: /info answers something else") from None
        if self._info.batch_size < 1:
            raise UsageError(f"--push: no trainer has registered with {self._url} yet: start it first")

    def unfit(self, row: Row) -> str | None:
        """Why its trainer could never take a group; None: it can."""
        longest = max(map(len, row["tokens"]))
        if 0 < self._info.max_token_len < longest:
            return f"it has a sequence of more than the {self._info.max_token_len} tokens that the trainer takes"
        if len(row["tokens"]) > self._info.batch_size:
            return f"it has more sequences than the trainer's batches of {self._info.batch_size}"
        return None

    def send(self, row: Row) -> None:
        """Put a group into the queue, once there is room. Raises WeavegenError."""
        while self._sent % LOOK == 0 and self._waiting() >= AHEAD:
            time.sleep(1)
        taken = self._again("/scored_data", row, Taken)
        if taken.status not in ("received", "buffered"):
            raise WeavegenError(f"{self._url} answered {taken.status!r:.100} to group {self._sent + 1}")
        self._sent += 1

    def _waiting(self) -> int:
        status: Status = self._again("/status", None, Status)
        return status.queue_size

    def _again(self, path: str, body: Row | None, type: Any) -> Any:
        """Ask, and ask again after what may pass."""
        for left in reversed(range(TRIES)):
            try:
                if body is None:
                    return msgspec.json.decode(self._http.get(self._url + path), type=type)
                return self._http.post(self._url + path, body, type)
            except TransientError as error:
                if not left:
                    raise WeavegenError(self._broken(error)) from None
                time.sleep(0.5 * 2 ** (TRIES - 1 - left))
            except (ModelError, msgspec.MsgspecError) as error:
                raise WeavegenError(self._broken(error)) from None
        raise AssertionError("the last try returns or raises")

    def _broken(self, error: Exception) -> str:
        return f"{self._sent} groups were sent, the next one could not be: {' '.join(str(error).split())[:500]}"

    def close(self) -> None:
        self._http.close()
