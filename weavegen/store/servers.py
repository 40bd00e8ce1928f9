"""Model servers that people lend to the pool, and the ledger of served requests, in Postgres."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.store import reports
from weavegen.store.traces import SERVER_LOCK
from weavegen.text import duration


@dataclass(frozen=True)
class ServerHealth:
    """What went wrong at a server."""

    url: str
    errors: int
    """Failed requests of all time."""
    errors_since_ok: int
    """Since the server last answered a request of a step."""
    last_error: str
    kind: str
    """Of the last error: TransientError.kind."""
    last_error_at: datetime
    last_ok_at: datetime | None
    age: float
    """Seconds since the last error."""
    failing: bool
    """Whether all requests there fail at the moment."""
    by_kind: dict[str, int]
    """Errors by kind."""

    @property
    def line(self) -> str:
        """The last error with its age and the number of errors."""
        count = self.errors_since_ok if self.failing else self.errors
        errors = f"{count:,} {'error' if count == 1 else 'errors'}" + (" in a row" if self.failing else "")
        return f"{self.last_error}, {errors}, the last {duration(self.age)} ago"

    advice: ClassVar[str] = "see the server's log, or use another server"
    """What to do if the server fails."""


def health(conn: Connection, urls: Collection[str]) -> list[ServerHealth]:
    """The servers among `urls` at which requests failed, now or earlier."""
    return [ServerHealth(**row) for row in sql.run(conn, "store/server_health", urls=list(urls)).mappings()]


def failing(conn: Connection, urls: Collection[str]) -> list[ServerHealth]:
    """The servers among `urls` at which all requests fail at the moment. If these are all servers, the pool fails."""
    return [server for server in health(conn, urls) if server.failing]


def servers(conn: Connection, *, gone: bool = False) -> Sequence[Any]:
    """Rows (url, owner, model, added_at, removed_at) of the servers that people lend, in the order of joining.

    With `gone` also those that have left. `model` is the one that a server had when it was added.
    """
    return sql.run(conn, "store/lent_servers", gone=gone).all()


def add(
    conn: Connection,
    url: str,
    owner: str,
    model: str,
    urls: Sequence[str],
    same: Sequence[str],
    moves: Callable[[Mapping[str, int], str], Mapping[str, int]],
) -> int:
    """Add a server to the pool, which has the members `urls`. Returns how many running traces move to it.

    `same`: the members that serve the same model, whose traces may move. `moves` gets the number of running traces
    by server, and `url`; it returns how many each server gives away. The traces with the fewest blocks move: they
    cost the least to prefill again. Raises UsageError where the server is in the pool already.
    """
    sql.run(conn, "store/advisory_lock", key=SERVER_LOCK)
    present = servers(conn)
    if url in urls or any(server.url == url for server in present):
        raise UsageError(f"{url} is in the pool: `weavegen pool list` says who lends it")
    sql.run(conn, "store/add_server", url=url, owner=owner, model=model)
    homes = reports.traces_by_server(conn)
    moved = 0
    for home, number in moves({member: homes.get(member, 0) for member in same}, url).items():
        moved += sql.run(conn, "store/move_youngest", target=url, source=home, number=number).rowcount
    return moved


def remove(conn: Connection, url: str) -> int:
    """Take a server out of the pool. Returns how many running traces it had. Raises UsageError."""
    if sql.run(conn, "store/remove_server", url=url).rowcount != 1:
        raise UsageError(f"{url} was not added to the pool: `weavegen pool list` shows what was")
    return reports.traces_by_server(conn).get(url, 0)
