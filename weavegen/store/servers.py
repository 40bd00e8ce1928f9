"""Model servers that people lend to the pool, and the ledger of what was served, in Postgres."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.pool.metering import TokenUsage
from weavegen.pool.routing import moves
from weavegen.services import model_server
from weavegen.store import models as m
from weavegen.store import reports
from weavegen.store.models import TraceStatus
from weavegen.store.traces import SERVER_LOCK

SERVERS, USAGE, TRACES, JOBS = map(m.table, (m.ModelServer, m.ModelUsage, m.Trace, m.Job))


@dataclass(frozen=True)
class Lent:
    """A server that somebody lends, or lent."""

    url: str
    owner: str
    model: str
    """That it served when it was added."""
    added_at: datetime.datetime
    removed_at: datetime.datetime | None
    """None: it is in the pool."""


@dataclass(frozen=True)
class Members:
    """The servers of the pool, by base URL: those of the configuration first."""

    keys: Mapping[str, str]
    """The API key that each is sent."""
    owners: Mapping[str, str]
    """Who lends it; nobody lends those of the configuration."""

    def require(self) -> None:
        """Raises UsageError, for people, where there is none."""
        if not self.keys:
            raise UsageError(
                "no model server: set OPENAI_BASE_URL, start a small one with `weavegen up`, or add one by "
                "`weavegen pool add URL`"
            )


def members(conn: sa.Connection, config: Config) -> Members:
    """Who is in the pool now: the servers that the configuration names, and those that were added.

    What is lent is not sent OPENAI_API_KEY, which is the configured servers' own.
    """
    try:
        configured = model_server.urls(config)
    except UsageError:  # there is none
        configured = []
    lent = {one.url: one.owner for one in servers(conn) if one.url not in configured}
    keys = dict.fromkeys(configured, config.api_key) | dict.fromkeys(lent, config.pool_key)
    return Members(keys, lent)


def servers(conn: sa.Connection, *, gone: bool = False) -> list[Lent]:
    """The servers that people lend, in the order in which they came; with `gone` also those that they lent."""
    query = sa.select(*(SERVERS.c[name] for name in Lent.__dataclass_fields__)).order_by(SERVERS.c.id)
    return [Lent(*row) for row in conn.execute(query if gone else query.where(SERVERS.c.removed_at.is_(None)))]


def add(conn: sa.Connection, url: str, owner: str, model: str, urls: Sequence[str]) -> int:
    """Take a server into the pool, which had the members `urls`. Returns how many running traces move to it.

    These are the ones with the fewest blocks, which cost the least to read anew. Raises UsageError where it is in.
    """
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(SERVER_LOCK)))
    present = servers(conn)
    if url in urls or any(one.url == url for one in present):
        raise UsageError(f"{url} is in the pool: `weavegen pool list` says who lends it")
    if strange := [one.model for one in present if one.model != model]:  # added just now
        raise UsageError(f"{url} serves {model}, and the pool serves {strange[0]}: a pool serves one model")
    conn.execute(sa.insert(SERVERS).values(url=url, owner=owner, model=model))
    homes = reports.traces_by_server(conn)
    moved = 0
    for home, number in moves({one: homes.get(one, 0) for one in urls}, url).items():
        youngest = (
            sa.select(TRACES.c.id)
            .where(TRACES.c.status == TraceStatus.RUNNING, TRACES.c.server == home)
            .order_by(TRACES.c.blocks, TRACES.c.id.desc())
            .limit(number)
        )
        moved += conn.execute(sa.update(TRACES).where(TRACES.c.id.in_(youngest)).values(server=url)).rowcount
    return moved


def remove(conn: sa.Connection, url: str) -> int:
    """Take a server out of the pool. Returns how many running traces must find another. Raises UsageError."""
    left = (
        sa.update(SERVERS)
        .where(SERVERS.c.url == url, SERVERS.c.removed_at.is_(None))
        .values(removed_at=sa.func.clock_timestamp())
    )
    if conn.execute(left).rowcount != 1:
        raise UsageError(f"{url} was not added to the pool: `weavegen pool list` shows what was")
    return reports.traces_by_server(conn).get(url, 0)


def models_in_use(conn: sa.Connection) -> list[str]:
    """Names of the models that running traces are written by, as far as their jobs know."""
    running = sa.exists().where(TRACES.c.job_id == JOBS.c.id, TRACES.c.status == TraceStatus.RUNNING)
    query = sa.select(JOBS.c.model).distinct().where(JOBS.c.model.is_not(None), running)
    return list(conn.execute(query.order_by(JOBS.c.model)).scalars())


RECORD = sa.insert(USAGE)


@dataclass(frozen=True)
class Served:
    """What a server answered."""

    url: str
    owner: str | None
    """Who lent it then."""
    used: TokenUsage


def record(conn: sa.Connection, trace_id: int, kind: str, served: Sequence[Served]) -> None:
    """Write into the ledger what was served to a trace. Rows are only ever added, so nobody waits for anybody."""
    for one in served:  # mostly one, and for that this is the fastest
        whose = {"server": one.url, "owner": one.owner, "trace_id": trace_id, "kind": kind}
        conn.execute(RECORD, whose | vars(one.used))


BY = {
    "server": ("server", "owner"),
    "owner": ("owner",),
    "job": ("job_id", "job", "enqueued_by"),
    "user": ("enqueued_by",),
}
"""What `weavegen pool usage` sums up by: columns of the view pool_usage."""
SUMS = ("requests", "sequences", "prompt_tokens", "cached_tokens", "sampled_tokens", "uncounted")
"""Columns of it that are summed up."""


def usage(conn: sa.Connection, by: str) -> list[dict[str, Any]]:
    """The ledger summed up, `by` one of BY: what it is about, and the sums. The most prompt tokens first."""
    columns = ", ".join(BY[by])
    sums = ", ".join(f"sum({name})::bigint as {name}" for name in SUMS)
    query = f"select {columns}, {sums} from pool_usage group by {columns} order by prompt_tokens desc, {columns}"
    return [dict(row) for row in conn.execute(sa.text(query)).mappings()]
