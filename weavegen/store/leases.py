"""Leases: rows that one worker holds at a time, such as steps and batches of campaigns.

A claim marks a row as running, counts up its `claims` and sets `lease_until`. The worker renews the lease while it
works, and then finishes the row or releases it. Each change is one compare-and-set statement on (id, claims), so a
worker that lost its row to another can't change it any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import StepLost

MAX_DELAY_SECONDS = 45.0
"""A released row is sent again after at most this long."""
MAX_CLAIMS = 30
"""A row that was claimed this often and never finished fails: something in it kills or blocks its workers."""


class Held(Protocol):
    """A row that this worker holds."""

    @property
    def id(self) -> int: ...
    @property
    def claims(self) -> int:
        """How often the row was claimed: the fence against workers that have lost it."""


@dataclass(frozen=True)
class LeaseTable:
    """The leases of the rows of one table. What all tables have in common is in the queries store/lease_*."""

    table: str
    what: str
    """What a row is, in errors."""
    free: str
    """Status of a row that nobody holds."""

    def renew(self, conn: Connection, held: Sequence[tuple[int, int]], seconds: float) -> int:
        """Renew the leases of rows, given as (id, claims), for `seconds`. Returns how many are still held."""
        return self._run(conn, "renew", seconds=seconds, **_arrays(held))

    def finish(self, conn: Connection, held: Held, query: str, **values: Any) -> None:
        """Run the query that ends a row. Raises StepLost where this worker no longer holds it."""
        if sql.run(conn, query, id=held.id, claims=held.claims, **values).rowcount != 1:
            raise StepLost(f"{self.what} {held.id}: another worker holds it, or it was cancelled")

    def release(self, conn: Connection, held: Held, reason: str, delay: float, *, counts: bool = True) -> None:
        """Give a row back, to be sent again in `delay` seconds. An attempt that could not even begin is no claim."""
        values = {"id": held.id, "claims": held.claims, "undone": int(not counts)}
        self._run(conn, "release", reason=reason, delay=delay, **values)

    def give_back(self, conn: Connection, held: Sequence[tuple[int, int]]) -> None:
        """Free the rows of a worker process that ends, given as (id, claims)."""
        self._run(conn, "give_back", **_arrays(held))

    def _run(self, conn: Connection, query: str, **values: Any) -> int:
        return conn.execute(sql.load(f"store/lease_{query}", table=self.table, free=self.free), values).rowcount


def _arrays(held: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"ids": [id for id, _ in held], "claims": [claims for _, claims in held]}
