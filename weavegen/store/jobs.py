"""Jobs in Postgres: thousands of traces enqueued in one transaction."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.choose import derive_seed
from weavegen.store import models as m

JOBS, BOOTSTRAPS, TRACES = m.table(m.Job), m.table(m.Bootstrap), m.table(m.Trace)


@dataclass(frozen=True)
class Order:
    """One trace to be written."""

    name: str
    """File name of the bootstrap."""
    source: str
    params: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    """None: derived of the job's seed and the trace's number."""


def enqueue(
    conn: sa.Connection,
    orders: Sequence[Order],
    *,
    name: str,
    agent: str,
    model: str | None,
    seed: int,
    settings: dict[str, Any],
    version: str,
) -> int:
    """Write a job and its queued traces. Returns the job's id."""
    values = {"name": name, "agent": agent, "model": model, "seed": seed, "settings": settings, "version": version}
    job_id = int(conn.execute(sa.insert(JOBS).values(values).returning(JOBS.c.id)).scalar_one())
    bootstraps = _bootstrap_ids(conn, orders)
    rows = [
        {
            "job_id": job_id,
            "number": number,
            "bootstrap_id": bootstraps[order.source],
            "params": order.params,
            "seed": order.seed if order.seed is not None else derive_seed(seed, "trace", number),
        }
        for number, order in enumerate(orders, 1)
    ]
    conn.execute(sa.insert(TRACES), rows)
    return job_id


def _bootstrap_ids(conn: sa.Connection, orders: Sequence[Order]) -> dict[str, int]:
    """Bootstraps by source, written where they are new."""
    sources = {order.source: order.name for order in orders}
    hashes = {hashlib.sha256(source.encode()).hexdigest(): source for source in sources}
    rows = [{"sha256": digest, "name": sources[source], "source": source} for digest, source in hashes.items()]
    conn.execute(insert(BOOTSTRAPS).on_conflict_do_nothing(), rows)
    known = conn.execute(sa.select(BOOTSTRAPS.c.id, BOOTSTRAPS.c.sha256).where(BOOTSTRAPS.c.sha256.in_(hashes)))
    return {hashes[row.sha256]: row.id for row in known}
