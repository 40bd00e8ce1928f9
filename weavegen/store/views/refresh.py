"""Filling materialised views anew: when somebody asks for it, and by a beat task as they age."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weavegen.errors import UsageError

MEMORY = "128MB"
"""That a sort of a refresh may take, and a hash twice as much."""
LEAST = 60.0
"""Seconds that the rows of a view hold at least."""
REST = 20.0
"""Times what its last refresh took: they hold that long, too. So it takes a twentieth of one core at most."""

MATERIALISED = """
select v.name from views v join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm' order by v.position
"""
# Where nothing was written since, a view is left as it is.
DUE = """
select v.name from views v join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm' and v.as_of < now() - make_interval(secs => greatest(:least, :rest * v.seconds))
  and (exists (select from traces where status = 'running')
    or v.as_of < (select greatest(max(created_at), max(finished_at)) from traces))
order by v.position limit 1 for update of v skip locked
"""


@dataclass(frozen=True)
class Refreshed:
    """A view that was filled anew."""

    view: str
    rows: int
    seconds: float


def refresh(conn: sa.Connection, names: Sequence[str] = ()) -> Iterator[Refreshed]:
    """Refresh these materialised views, or all, each in a transaction of its own. Raises UsageError.

    In the order in which they are made: some read others.
    """
    there = conn.execute(sa.text(MATERIALISED)).scalars().all()
    if strange := [name for name in names if name not in there]:
        raise UsageError(f"there is no materialised view {', '.join(strange)}: choose of {', '.join(there)}")
    conn.commit()
    for name in there:
        if not names or name in names:
            yield _refresh(conn, name)


def refresh_next(conn: sa.Connection) -> Refreshed | None:
    """Refresh the first materialised view that is due and that nobody refreshes just now; None: there is none."""
    name = conn.execute(sa.text(DUE), {"least": LEAST, "rest": REST}).scalar_one_or_none()
    if name is None:
        conn.rollback()
        return None
    return _refresh(conn, name)


def _refresh(conn: sa.Connection, name: str) -> Refreshed:
    began = time.perf_counter()
    # One core, and no shared memory, of which containers have little: traces go on being written beside it.
    conn.execute(sa.text("set local max_parallel_workers_per_gather = 0"))
    conn.execute(sa.text(f"set local work_mem = '{MEMORY}'"))
    conn.execute(sa.text("set local statement_timeout = 0"))
    # Its rows are those that the snapshot of the refresh shows, which is taken after now().
    conn.execute(sa.text("update views set as_of = now() where name = :name"), {"name": name})
    conn.execute(sa.text(f'refresh materialized view concurrently "{name}"'))
    conn.execute(sa.text(f'analyze "{name}"'))
    rows = conn.execute(sa.text(f'select count(*) from "{name}"')).scalar_one()
    seconds = round(time.perf_counter() - began, 3)
    conn.execute(
        sa.text("update views set seconds = :seconds where name = :name"), {"name": name, "seconds": seconds}
    )
    conn.commit()
    return Refreshed(name, rows, seconds)
