"""Renewal of the leases that a process holds, in one thread for each kind of lease."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import psycopg

from weavegen.store.leases import Held, LeaseTable
from weavegen.store.session import single

log = logging.getLogger(__name__)


class Leases:
    """Renews the leases of one kind that this process holds, for as long as it lives."""

    all: ClassVar["list[Leases]"] = []

    def __init__(self, kind: str, table: LeaseTable, seconds: float) -> None:
        self.kind, self.table, self.seconds = kind, table, seconds
        self._held: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self.all.append(self)
        threading.Thread(target=self._renew_forever, name=f"leases of {kind}", daemon=True).start()

    @contextmanager
    def hold(self, row: Held) -> Iterator[None]:
        """Renew the lease of a claimed row while the block runs."""
        key = (row.id, row.claims)
        with self._lock:
            self._held.add(key)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(key)

    def held(self) -> list[tuple[int, int]]:
        """(id, claims) of the rows that this process works on."""
        with self._lock:
            return list(self._held)

    def holds(self, id: int) -> bool:
        """Whether this process works on a row, even under a lease that has expired."""
        with self._lock:
            return any(held == id for held, _ in self._held)

    def give_back(self) -> int:
        """Give all rows back, so that other workers may claim them. Returns how many there were."""
        held = self.held()
        if held:
            log.warning("%d %s are given back: they did not end in time", len(held), self.kind)
            with single().connect() as conn:
                self.table.give_back(conn, held)
        return len(held)

    def _renew_forever(self) -> None:
        while True:
            time.sleep(self.seconds / 3)
            if not (held := self.held()):
                continue
            try:
                with single().connect() as conn:
                    self.table.renew(conn, held, self.seconds)
            except psycopg.Error as error:
                log.warning("the database does not answer, so leases of %s are not renewed: %s", self.kind, error)
