"""Sends groups to a running Atropos server instead of a folder: `weavegen export --format atropos --push URL`.

The server keeps its queue in memory until its trainer takes a batch, so the queue is kept short. A group is sent
again if the answer to it was lost; then the server may have it twice.
"""

import contextlib
import time
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
import sqlalchemy as sa

from weavegen.config import NO_KEY
from weavegen.errors import ModelError, TransientError, UsageError, WeavegenError
from weavegen.exports.format import Row, RowFormat, Source
from weavegen.exports.write import Export, Progress, all_left_out, reading, selected
from weavegen.pool.http import Http

TIMEOUT_SECONDS = 60.0
RETRY_SECONDS = (0.5, 1, 2, 4, 8)
"""Pauses between the attempts of a request."""
MAX_QUEUE = 256
"""Groups that may wait in the server's queue."""
GROUPS_PER_CHECK = 32
"""The queue is checked once per so many groups."""


class Info(msgspec.Struct):
    """What a server says about its trainer; -1: none has registered."""

    batch_size: int = -1
    max_token_len: int = -1


class Status(msgspec.Struct):
    queue_size: int = 0


class Answer(msgspec.Struct):
    status: str


T = TypeVar("T", Status, Answer)


@dataclass
class Pushed:
    groups: int = 0
    sequences: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)


def push(conn: sa.Connection, order: Export, url: str, progress: Progress | None = None) -> Pushed:
    """Send what an export would write. Raises UsageError before it begins, WeavegenError after that."""
    assert isinstance(order.format, RowFormat)
    pushed = Pushed()
    server = Server(url)
    with contextlib.closing(server), reading(conn) as own, contextlib.closing(selected(own, order)) as selection:
        if not selection.count:
            raise UsageError(f"no row of the view {order.format.view} matches: nothing to send")
        source = Source(own, order.options)
        groups = (row for trace, keys in selection.traces() for row in order.format.rows(source, trace, keys))
        for done, row in enumerate(groups, 1):
            if (reason := server.unfit(row)) is not None:
                source.left_out[reason] += 1
                continue
            server.send(row)
            pushed.groups += 1
            pushed.sequences += len(row["tokens"])
            if progress is not None:
                progress(done, selection.count)
        pushed.left_out, pushed.notes = dict(source.left_out), dict(source.notes)
        if not pushed.groups:
            raise all_left_out(pushed.left_out)
    return pushed


class Server:
    """A running server with a registered trainer."""

    def __init__(self, url: str) -> None:
        """Raises UsageError where there is none."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--push {url!r:.200}: give the server's address, such as http://localhost:8000")
        self._url = url.rstrip("/")
        self._http = Http(NO_KEY, TIMEOUT_SECONDS)
        self._sent = 0
        try:
            self._info = msgspec.json.decode(self._http.get(self._url + "/info"), type=Info)
        except (ModelError, TransientError) as error:
            raise UsageError(f"--push: {error}: start the server (run-api) first") from None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise UsageError(f"--push: {self._url} is no Atropos server: its /info cannot be read") from None
        if self._info.batch_size < 1:
            raise UsageError(f"--push: no trainer has registered with {self._url} yet: start it first")

    def unfit(self, row: Row) -> str | None:
        """Why the trainer could never take a group; None: it can."""
        longest = max(map(len, row["tokens"]))
        if 0 < self._info.max_token_len < longest:
            return f"it has a sequence of more than the {self._info.max_token_len} tokens that the trainer takes"
        if len(row["tokens"]) > self._info.batch_size:
            return f"it has more sequences than the trainer's batches of {self._info.batch_size}"
        return None

    def send(self, row: Row) -> None:
        """Put a group into the queue once there is room. Raises WeavegenError."""
        while self._sent % GROUPS_PER_CHECK == 0 and self._request("/status", None, Status).queue_size >= MAX_QUEUE:
            time.sleep(1)
        answer = self._request("/scored_data", row, Answer)
        if answer.status not in ("received", "buffered"):
            raise WeavegenError(f"{self._url} answered {answer.status!r:.100} to group {self._sent + 1}")
        self._sent += 1

    def _request(self, path: str, body: Row | None, type: type[T]) -> T:
        """The server's answer. Errors that may pass are retried."""
        for pause in (*RETRY_SECONDS, None):
            try:
                if body is None:
                    return msgspec.json.decode(self._http.get(self._url + path), type=type)
                return self._http.post(self._url + path, body, type)
            except (ModelError, msgspec.MsgspecError, TransientError) as error:
                if pause is None or not isinstance(error, TransientError):
                    reason = " ".join(str(error).split())[:500]
                    raise WeavegenError(f"{self._sent} groups were sent, the next one failed: {reason}") from None
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        self._http.close()
