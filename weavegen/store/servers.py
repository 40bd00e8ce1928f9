"""Model servers that people lend to the pool, and the ledger of served requests, in Postgres."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from weavegen import sql
from weavegen.errors import UsageError
from weavegen.store import reports
from weavegen.store.models import TraceStatus
from weavegen.store.models.servers import SERVERS, USAGE
from weavegen.store.models.traces import JOBS, TRACES
from weavegen.store.traces import SERVER_LOCK

RECORD = sa.insert(USAGE)


def servers(conn: sa.Connection, *, gone: bool = False) -> Sequence[Any]:
    """Rows (url, owner, model, added_at, removed_at) of the servers that people lend, in the order of joining.

    With `gone` also those that have left. `model` is the one that a server had when it was added.
    """
    query = sa.select(*SERVERS.c["url", "owner", "model", "added_at", "removed_at"]).order_by(SERVERS.c.id)
    return conn.execute(query if gone else query.where(SERVERS.c.removed_at.is_(None))).all()


def add(
    conn: sa.Connection,
    url: str,
    owner: str,
    model: str,
    urls: Sequence[str],
    moves: Callable[[Mapping[str, int], str], Mapping[str, int]],
) -> int:
    """Add a server to the pool, which has the members `urls`. Returns how many running traces move to it.

    `moves` gets the number of running traces by server, and `url`; it returns how many each server gives away. The
    traces with the fewest blocks move, for they cost the least to read anew. Raises UsageError where the server is
    in the pool already.
    """
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(SERVER_LOCK)))
    present = servers(conn)
    if url in urls or any(server.url == url for server in present):
        raise UsageError(f"{url} is in the pool: `weavegen pool list` says who lends it")
    if strange := [server.model for server in present if server.model != model]:  # added just now
        raise UsageError(f"{url} serves {model}, and the pool serves {strange[0]}: a pool serves one model")
    conn.execute(sa.insert(SERVERS).values(url=url, owner=owner, model=model))
    homes = reports.traces_by_server(conn)
    moved = 0
    for home, number in moves({member: homes.get(member, 0) for member in urls}, url).items():
        parameters = {"to": url, "from": home, "number": number}
        moved += conn.execute(sql.load("store/move_youngest"), parameters).rowcount
    return moved


def remove(conn: sa.Connection, url: str) -> int:
    """Take a server out of the pool. Returns how many running traces it had. Raises UsageError."""
    member = sa.update(SERVERS).where(SERVERS.c.url == url, SERVERS.c.removed_at.is_(None))
    if conn.execute(member.values(removed_at=sa.func.clock_timestamp())).rowcount != 1:
        raise UsageError(f"{url} was not added to the pool: `weavegen pool list` shows what was")
    return reports.traces_by_server(conn).get(url, 0)


def models_in_use(conn: sa.Connection) -> list[str]:
    """Names of the models that write the running traces, as far as they are recorded."""
    running = sa.exists().where(TRACES.c.job_id == JOBS.c.id, TRACES.c.status == TraceStatus.RUNNING)
    query = sa.select(JOBS.c.model).distinct().where(JOBS.c.model.is_not(None), running)
    return list(conn.execute(query.order_by(JOBS.c.model)).scalars())


def record(conn: sa.Connection, trace_id: int, kind: str, served: Iterable[Mapping[str, Any]]) -> None:
    """Add to the ledger what was served to a trace: other columns of model_usage, for each server that answered.

    Rows are only added, so no transaction waits for another.
    """
    for values in served:  # usually one, for which single statements are fastest
        conn.execute(RECORD, {"trace_id": trace_id, "kind": kind, **values})


GROUPS = {
    "server": ("server", "owner"),
    "owner": ("owner",),
    "job": ("job_id", "job", "enqueued_by"),
    "user": ("enqueued_by",),
}
"""Groups of `weavegen pool usage`, with their columns of the view pool_usage."""
SUMS = ("requests", "sequences", "prompt_tokens", "cached_tokens", "sampled_tokens", "uncounted")
"""Columns of the view that are summed up."""


def usage(conn: sa.Connection, by: str) -> list[dict[str, Any]]:
    """Sums over the ledger, a row for each value of `by`, one of GROUPS. The most prompt tokens come first."""
    columns = ", ".join(GROUPS[by])
    sums = ", ".join(f"sum({name})::bigint as {name}" for name in SUMS)
    query = f"select {columns}, {sums} from pool_usage group by {columns} order by prompt_tokens desc, {columns}"
    return [dict(row) for row in conn.execute(sa.text(query)).mappings()]
