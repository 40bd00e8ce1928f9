"""Celery workers as they report themselves to Postgres, and the queues that no worker serves."""

from collections.abc import Mapping, Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.version import __version__

REPORT_SECONDS = 3.0
"""Time between reports of a worker."""
SILENT_SECONDS = 12.0
"""A worker that has not reported for this long is silent."""
FORGOTTEN_SECONDS = 600.0
"""A worker that has been silent for this long is forgotten."""


def report(conn: Connection, process: str, node: str, queues: Sequence[str], settings: Mapping[str, str]) -> None:
    """Record that a worker runs. Its first report replaces the worker that had this node on this host before."""
    values: dict[str, Any] = {"process": process, "node": node, "queues": list(queues), "version": __version__}
    sql.run(conn, "store/report_worker", **values, settings=settings, forgotten=FORGOTTEN_SECONDS)


def forget(conn: Connection, processes: Sequence[str]) -> None:
    """Delete the rows of workers that have ended."""
    sql.run(conn, "store/forget_workers", processes=list(processes))


def rows(conn: Connection) -> Sequence[Any]:
    """Rows (process, node, queues, version, settings, silent, age), age in seconds since the last report."""
    return sql.run(conn, "store/workers", silent=SILENT_SECONDS, forgotten=FORGOTTEN_SECONDS).all()
