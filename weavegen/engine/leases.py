"""Renewal of the leases that a process holds, in one thread for each kind of lease."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Protocol

import sqlalchemy as sa

from weavegen.store.session import single

log = logging.getLogger(__name__)


class Claim(Protocol):
    """A row that this process has claimed."""

    @property
    def id(self) -> int: ...
    @property
    def claims(self) -> int:
        """How often the row was claimed: the fence against workers that have lost it."""


class Leases:
    """Renews the leases of one kind that this process holds, for as long as it lives."""

    all: ClassVar["list[Leases]"] = []

    def __init__(
        self,
        kind: str,
        seconds: float,
        renew: Callable[[sa.Connection, list[tuple[int, int]], float], None],
        give_back: Callable[[sa.Connection, list[tuple[int, int]]], None],
    ) -> None:
        """`renew` and `give_back` receive (id, claims) of each row; `renew` also the seconds of the lease."""
        self.kind, self.seconds = kind, seconds
        self._renew, self._give_back = renew, give_back
        self._held: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self.all.append(self)
        threading.Thread(target=self._renew_forever, name=f"leases of {kind}", daemon=True).start()

    @contextmanager
    def hold(self, claim: Claim) -> Iterator[None]:
        """Renew the lease of a claimed row while the block runs."""
        key = (claim.id, claim.claims)
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

    def give_back(self) -> int:
        """Give all rows back, so that other workers may claim them. Returns how many there were."""
        held = self.held()
        if held:
            log.warning("%d %s are given back: they did not end in time", len(held), self.kind)
            with single().connect() as conn:
                self._give_back(conn, held)
        return len(held)

    def _renew_forever(self) -> None:
        while True:
            time.sleep(self.seconds / 3)
            if not (held := self.held()):
                continue
            try:
                with single().connect() as conn:
                    self._renew(conn, held, self.seconds)
            except sa.exc.DBAPIError as error:
                log.warning("the database does not answer, so leases of %s are not renewed: %s", self.kind, error)
