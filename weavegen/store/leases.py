"""Leases: rows that one worker holds at a time, such as steps and batches of campaigns.

A claim marks a row as running, counts up its `claims` and sets `lease_until`. The worker renews the lease while it
works, and then finishes the row or releases it. Each change is one compare-and-set statement on (id, claims), so a
worker that lost its row to another can't change it any more.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from weavegen.errors import StepLost

MAX_DELAY_SECONDS = 45.0
"""A released row is sent again after this at the latest."""
MAX_CLAIMS = 30
"""A row that was claimed this often and never finished fails: something in it kills or blocks its workers."""


class Held(Protocol):
    """A row that this worker holds."""

    @property
    def id(self) -> int: ...
    @property
    def claims(self) -> int:
        """How often the row was claimed: the fence against workers that have lost it."""


def later(seconds: Any) -> Any:
    """The time in so many seconds, by the database's clock."""
    return sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds)


class LeaseTable:
    """The leases of the rows of one table."""

    def __init__(
        self,
        table: sa.Table,
        what: str,
        *,
        free: enum.StrEnum,
        sent: enum.StrEnum,
        running: enum.StrEnum,
        results: Mapping[str, Any],
    ) -> None:
        """`what` names a row in errors. `results`: columns that `finish` sets, from the parameters :new_NAME.

        The statuses of a row: `free`, nobody holds it; `sent`, nobody holds it and Celery has a message about it;
        `running`, a worker holds it.
        """
        self._table, self._what = table, what
        self._free, self._sent, self._running = free, sent, running
        c = table.c
        self._one = (c.id == sa.bindparam("held"), c.claims == sa.bindparam("fence"), c.status == running)
        self._finish = (
            sa.update(table)
            .where(*self._one)
            .values(
                status=sa.bindparam("new_status"),
                lease_until=None,
                finished_at=sa.func.clock_timestamp(),
                **results,
            )
        )

    def claiming(self, *where: sa.ColumnElement[bool]) -> sa.Update:
        """The statement that claims the row :row for the worker :by for :lease seconds, where `where` is true."""
        c = self._table.c
        return (
            sa.update(self._table)
            .where(c.id == sa.bindparam("row"), *where)
            .where(sa.or_(c.status == self._free, c.status == self._sent))
            .values(
                status=self._running,
                claims=c.claims + 1,
                worker=sa.bindparam("by"),
                claimed_at=sa.func.clock_timestamp(),
                lease_until=later(sa.bindparam("lease", type_=sa.Double)),
            )
        )

    def renew(self, conn: sa.Connection, held: Sequence[tuple[int, int]], seconds: float) -> None:
        """Renew the leases of rows, given as (id, claims), for so many seconds."""
        statement = sa.update(self._table).where(self._among(held), self._table.c.status == self._running)
        conn.execute(statement.values(lease_until=later(seconds)))

    def finish(self, conn: sa.Connection, held: Held, status: enum.StrEnum, values: Mapping[str, Any]) -> None:
        """Store the results of a row. Raises StepLost where this worker no longer holds it."""
        parameters = {"held": held.id, "fence": held.claims, "new_status": status}
        done = conn.execute(self._finish, parameters | {f"new_{name}": value for name, value in values.items()})
        if done.rowcount != 1:
            raise StepLost(f"{self._what} {held.id}: another worker holds it, or it was cancelled")

    def release(self, conn: sa.Connection, held: Held, reason: str, delay: float, *, counts: bool = True) -> None:
        """Give a row back after a transient error, to be sent again in `delay` seconds.

        An attempt that could not even begin does not count as a claim.
        """
        released = {"status": self._free, "lease_until": None, "failure": reason, "send_after": later(delay)}
        released["claims"] = self._table.c.claims - int(not counts)
        statement = sa.update(self._table).where(*self._one).values(released)
        conn.execute(statement, {"held": held.id, "fence": held.claims})

    def give_back(self, conn: sa.Connection, *where: sa.ColumnElement[bool]) -> int:
        """Free the running rows that match, to be sent at once. Returns how many."""
        statement = sa.update(self._table).where(self._table.c.status == self._running, *where)
        values = {"status": self._free, "lease_until": None, "send_after": sa.func.clock_timestamp()}
        return conn.execute(statement.values(values)).rowcount

    def give_back_held(self, conn: sa.Connection, held: Sequence[tuple[int, int]]) -> None:
        """Free the rows of a worker process that ends, given as (id, claims)."""
        self.give_back(conn, self._among(held))

    def overdue(self, resend: float) -> sa.ColumnElement[bool]:
        """Whether a row is to be sent again: its lease expired, or nobody claimed it after it was sent.

        `resend`: seconds after which a row is sent again.
        Times beyond the longest delay count as overdue too: the database's clock was set back.
        """
        c, now, never = self._table.c, sa.func.clock_timestamp(), later(resend + MAX_DELAY_SECONDS)
        expired = (c.status == self._running) & ~c.lease_until.between(now, never)
        unclaimed = (c.status == self._sent) & ~c.send_after.between(now, never)
        return c.status.in_((self._sent, self._running)) & (expired | unclaimed)

    def _among(self, held: Sequence[tuple[int, int]]) -> sa.ColumnElement[bool]:
        return sa.tuple_(self._table.c.id, self._table.c.claims).in_(held)
