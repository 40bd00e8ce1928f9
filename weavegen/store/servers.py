"""Model servers that people lend to the pool, and the ledger of served requests, in Postgres."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.store import reports
from weavegen.store.models import TraceStatus
from weavegen.store.models.servers import SERVERS, USAGE
from weavegen.store.models.traces import JOBS, TRACES
from weavegen.store.traces import SERVER_LOCK

RECORD = sa.insert(USAGE)


@dataclass(frozen=True)
class LentServer:
    """A server that somebody lends, or lent."""

    url: str
    owner: str
    model: str
    """The model that it served when it was added."""
    added_at: datetime.datetime
    removed_at: datetime.datetime | None
    """None: it is in the pool."""


def servers(conn: sa.Connection, *, gone: bool = False) -> list[LentServer]:
    """The servers that people lend, in the order in which they joined; with `gone` also those that have left."""
    query = sa.select(*(SERVERS.c[name] for name in LentServer.__dataclass_fields__)).order_by(SERVERS.c.id)
    rows = conn.execute(query if gone else query.where(SERVERS.c.removed_at.is_(None)))
    return [LentServer(*row) for row in rows]


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
        youngest = (
            sa.select(TRACES.c.id)
            .where(TRACES.c.status == TraceStatus.RUNNING, TRACES.c.server == home)
            .order_by(TRACES.c.blocks, TRACES.c.id.desc())
            .limit(number)
        )
        moved += conn.execute(sa.update(TRACES).where(TRACES.c.id.in_(youngest)).values(server=url)).rowcount
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


@dataclass(frozen=True)
class Served:
    """The requests of one step that a server answered."""

    url: str
    owner: str | None
    """Who lent the server then."""
    usage: Mapping[str, Any]
    """Columns of model_usage: requests, sequences, and so on."""


def record(conn: sa.Connection, trace_id: int, kind: str, served: Sequence[Served]) -> None:
    """Add to the ledger what was served to a trace. Rows are only added, so no transaction waits for another."""
    for requests in served:  # usually one, for which single statements are fastest
        about = {"server": requests.url, "owner": requests.owner, "trace_id": trace_id, "kind": kind}
        conn.execute(RECORD, {**about, **requests.usage})


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
