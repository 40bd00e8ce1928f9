"""Refreshing materialised views: when somebody asks for it, and by a beat task as they age."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from weavegen import sql
from weavegen.errors import UsageError

WORK_MEMORY = "128MB"
"""Memory for a sort of a refresh. A hash may take twice as much."""
MIN_AGE_SECONDS = 60.0
"""Age of a view's rows below which it is not refreshed."""
MIN_AGE_RATIO = 20.0
"""Times the duration of the last refresh: a second limit on the age. So refreshing takes 5 % of a core at most."""

MATERIALISED = """
select v.name from views v join pg_class c on c.oid = to_regclass(quote_ident(v.name))
where c.relkind = 'm' order by v.position
"""


@dataclass(frozen=True)
class Refreshed:
    """A refresh of a view."""

    view: str
    rows: int
    seconds: float


def refresh(conn: sa.Connection, names: Sequence[str] = ()) -> Iterator[Refreshed]:
    """Refresh these materialised views, or all, each in a transaction of its own. Raises UsageError.

    In the order in which they are made, for some read others.
    """
    known = conn.execute(sa.text(MATERIALISED)).scalars().all()
    if unknown := [name for name in names if name not in known]:
        raise UsageError(f"there is no materialised view {', '.join(unknown)}: choose of {', '.join(known)}")
    conn.commit()
    for name in known:
        if not names or name in names:
            yield _refresh(conn, name)


def refresh_next(conn: sa.Connection) -> Refreshed | None:
    """Refresh the first materialised view that is due and that nobody else refreshes. None: there is none."""
    parameters = {"least": MIN_AGE_SECONDS, "rest": MIN_AGE_RATIO}
    name = conn.execute(sql.load("store/views_due"), parameters).scalar_one_or_none()
    if name is None:
        conn.rollback()
        return None
    return _refresh(conn, name)


def _refresh(conn: sa.Connection, name: str) -> Refreshed:
    began = time.perf_counter()
    # One core, so that traces are written at the same time; and no shared memory, which is scarce in containers.
    conn.execute(sa.text("set local max_parallel_workers_per_gather = 0"))
    conn.execute(sa.text(f"set local work_mem = '{WORK_MEMORY}'"))
    conn.execute(sa.text("set local statement_timeout = 0"))
    # The rows are those of the snapshot of the refresh, which is taken after now().
    conn.execute(sa.text("update views set as_of = now() where name = :name"), {"name": name})
    conn.execute(sa.text(f'refresh materialized view concurrently "{name}"'))
    conn.execute(sa.text(f'analyze "{name}"'))
    rows = conn.execute(sa.text(f'select count(*) from "{name}"')).scalar_one()
    seconds = round(time.perf_counter() - began, 3)
    duration = sa.text("update views set seconds = :seconds where name = :name")
    conn.execute(duration, {"name": name, "seconds": seconds})
    conn.commit()
    return Refreshed(name, rows, seconds)
