"""The pool of servers, for the threads of one process: routing.py's decisions, carried out."""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from weavegen.errors import Busy, ModelError, Refused, TransientError, Unserved, UsageError
from weavegen.pool import metrics
from weavegen.pool.client import ModelClient
from weavegen.pool.http import Http
from weavegen.pool.routing import Outcome, Router

log = logging.getLogger(__name__)
T = TypeVar("T")

LOOK = 1.0
"""Seconds between two looks at a server's figures."""
ATTEMPTS = 4
"""Of a request, before its step is given back to the journal."""
BACKOFF = 0.25
"""Seconds before the second attempt, doubled with each; half to one and a half times that, by chance."""
PROBE = 10.0
"""Seconds in which a server that has rested must give one token."""
PATIENCE = 60.0
"""Seconds that a request waits while no server is in use, before its step is given back."""


class Pool:
    """Several servers that serve one model.

    `with_server` finds a server and a moment for a call, tries it again where that may help, and returns what the
    call returned.
    """

    def __init__(self, urls: Sequence[str], api_key: str, model: str | None, *, timeout: float = 600.0) -> None:
        """Starts a thread for each server that looks at its figures."""
        self._clients = {url: ModelClient(url, api_key, model, timeout=timeout) for url in urls}
        self._router = Router(urls)
        self._lock = threading.Lock()
        self._granted: dict[int, str] = {}
        self._events: dict[int, threading.Event] = {}
        self._closed = threading.Event()
        self._http = Http(api_key, 5.0)
        for url in urls:
            threading.Thread(target=self._look, args=(url,), name=f"look {url}", daemon=True).start()

    @property
    def urls(self) -> list[str]:
        return list(self._clients)

    def home(self, homes: Mapping[str, int]) -> str:
        """The server for a trace that begins; `homes`: how many running traces each has."""
        with self._lock:
            return self._router.home(homes)

    def with_server(self, trace: int, home: str, sequences: int, call: Callable[[ModelClient], T]) -> T:
        """`call` with the client of a server that has room for so many sequences.

        Raises what is final at once, TransientError after a few attempts, Unserved where no server is in use.
        """
        for attempt in range(1, ATTEMPTS + 1):
            url = self._admitted(trace, home, sequences)
            outcome: Outcome = "failed"
            try:
                found = call(self._clients[url])
                outcome = "ok"
                return found
            except TransientError as error:
                outcome = _outcome(error)
                if attempt == ATTEMPTS:
                    if isinstance(error, Refused):
                        raise Unserved(str(error)) from None
                    raise
                log.info("trace %d, attempt %d: %s", trace, attempt, error)
            except Exception:
                outcome = "ok"  # an answer all the same: the server is well
                raise
            finally:
                with self._lock:
                    self._router.done(url, sequences, outcome, time.monotonic())
                    self._grant()
            time.sleep(BACKOFF * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections; the threads end by themselves."""
        self._closed.set()
        for client in self._clients.values():
            client.close()
        self._http.close()

    def _admitted(self, trace: int, home: str, sequences: int) -> str:
        """Wait for a server. Returns its URL: the request counts as in flight there."""
        event = threading.Event()
        with self._lock:
            ticket = self._router.ask(trace, home, sequences)
            self._events[ticket] = event
            self._grant()
        try:
            while not event.wait(PATIENCE):
                with self._lock:
                    in_use = any(server.rests_until is None for server in self._router.servers.values())
                    if ticket not in self._granted and not in_use:
                        self._router.withdraw(ticket)
                        raise Unserved(f"no server is in use: {', '.join(self.urls)}")
            return self._granted.pop(ticket)
        finally:
            with self._lock:
                del self._events[ticket]

    def _grant(self) -> None:
        """Let go whoever may. The caller holds the lock."""
        for ticket, url in self._router.grant():
            self._granted[ticket] = url
            self._events[ticket].set()

    def _look(self, url: str) -> None:
        """Keep reading a server's figures, or probing it where it failed, and let requests go when that allows."""
        tells = True
        while not self._closed.wait(LOOK * random.uniform(0.8, 1.2)):
            rests_until = self._router.servers[url].rests_until
            if rests_until is not None:
                if time.monotonic() >= rests_until:
                    outcome = self._probe(url)
                    with self._lock:
                        self._router.probed(url, outcome, time.monotonic())
                        self._grant()
                continue
            try:
                load = metrics.read(url, self._http).load if tells else None
            except ModelError as error:
                log.warning("%s: it is sent more and more until it calls itself busy", error)
                tells = False
            except TransientError as error:
                with self._lock:
                    self._router.silent(url, _outcome(error), time.monotonic())
                    self._grant()
            else:
                with self._lock:
                    if load is not None:
                        self._router.told(url, load)
                    self._grant()

    def _probe(self, url: str) -> Outcome:
        """One token from a server that has rested."""
        try:
            self._clients[url].probe(PROBE)
        except TransientError as error:
            return _outcome(error)
        except (ModelError, UsageError) as error:
            log.warning("%s is not used: %s", url, error)
            return "failed"
        return "ok"


def _outcome(error: TransientError) -> Outcome:
    return "busy" if isinstance(error, Busy) else "refused" if isinstance(error, Refused) else "failed"
