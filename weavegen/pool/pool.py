"""The pool of servers, for the threads of one process: routing.py's decisions, carried out."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
    """Servers that serve one model; they may come and go.

    `with_server` finds a server and a moment for a call, tries it again where that may help, and returns what the
    call returned.
    """

    def __init__(self, urls: Iterable[str], api_key: str, model: str | None, *, timeout: float = 600.0) -> None:
        self._model, self._timeout = model, timeout
        self._keys: dict[str, str] = {}
        self._clients: dict[str, ModelClient] = {}
        """Of the members. Whoever was granted a request has hold of its client, also when that server leaves."""
        self._router = Router(())
        self._lock = threading.Lock()
        self._granted: dict[int, tuple[str, ModelClient]] = {}
        self._events: dict[int, threading.Event] = {}
        self._closed = threading.Event()
        self.become(dict.fromkeys(urls, api_key))

    @property
    def urls(self) -> list[str]:
        """Of its members."""
        with self._lock:
            return list(self._clients)

    def become(self, keys: Mapping[str, str]) -> None:
        """Have these members from now on: API keys by URL. Those that stay notice nothing.

        A server that leaves is sent no more; what is in flight there ends. Each server that comes gets a thread
        that looks at its figures.
        """
        with self._lock:
            for url in self._keys.keys() - keys.keys():
                self._router.remove(url)
                del self._clients[url], self._keys[url]
            for url, key in keys.items():
                if self._keys.get(url) == key:
                    continue
                self._keys[url] = key
                client = self._clients[url] = ModelClient(url, key, self._model, timeout=self._timeout)
                self._router.add(url)
                look = threading.Thread(
                    target=self._look, args=(url, client, key), name=f"look {url}", daemon=True
                )
                look.start()
            self._grant()

    def home(self, homes: Mapping[str, int]) -> str:
        """The server for a trace that begins; `homes`: how many running traces each has. Raises Unserved."""
        with self._lock:
            self._require_members()
            return self._router.home(homes)

    def with_server(self, trace: int, home: str, sequences: int, call: Callable[[ModelClient], T]) -> T:
        """`call` with the client of a server that has room for so many sequences; `home` may have left the pool.

        Raises what is final at once, TransientError after a few attempts, Unserved where no server is in use.
        """
        for attempt in range(1, ATTEMPTS + 1):
            url, client = self._admitted(trace, home, sequences)
            outcome: Outcome = "failed"
            try:
                found = call(client)
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

    def _require_members(self) -> None:
        """Raises Unserved where there is no member. The caller holds the lock."""
        if not self._clients:
            raise Unserved("the pool has no model server: add one with `weavegen pool add URL`")

    def _admitted(self, trace: int, home: str, sequences: int) -> tuple[str, ModelClient]:
        """Wait for a server. Returns its URL and client: the request counts as in flight there."""
        event = threading.Event()
        with self._lock:
            self._require_members()
            ticket = self._router.ask(trace, home, sequences)
            self._events[ticket] = event
            self._grant()
        try:
            while not event.wait(PATIENCE):
                with self._lock:
                    in_use = any(server.usable for server in self._router.members)
                    if ticket not in self._granted and not in_use:
                        self._router.withdraw(ticket)
                        self._require_members()
                        raise Unserved(f"no server is in use: {', '.join(self._clients)}")
            return self._granted.pop(ticket)
        finally:
            with self._lock:
                del self._events[ticket]

    def _grant(self) -> None:
        """Let go whoever may. The caller holds the lock."""
        for ticket, url in self._router.grant():
            self._granted[ticket] = url, self._clients[url]
            self._events[ticket].set()

    def _look(self, url: str, client: ModelClient, key: str) -> None:
        """Keep reading a server's figures, or probing it where it failed, and let requests go when that allows.

        Until it leaves the pool.
        """
        tells, http = True, Http(key, 5.0)
        while not self._closed.wait(LOOK * random.uniform(0.8, 1.2)):
            with self._lock:
                if self._clients.get(url) is not client:
                    break
                rests_until = self._router.servers[url].rests_until
            tell: Callable[[], None] | None = None
            if rests_until is not None:
                if time.monotonic() < rests_until:
                    continue
                tell = partial(self._router.probed, url, self._probe(client), time.monotonic())
            else:
                try:
                    if tells:
                        tell = partial(self._router.told, url, metrics.read(url, http).load)
                except ModelError as error:
                    log.warning("%s: it is sent more and more until it calls itself busy", error)
                    tells = False
                except TransientError as error:
                    tell = partial(self._router.silent, url, _outcome(error), time.monotonic())
            with self._lock:
                if self._clients.get(url) is not client:
                    break
                if tell is not None:
                    tell()
                self._grant()
        http.close()

    @staticmethod
    def _probe(client: ModelClient) -> Outcome:
        """One token from a server that has rested."""
        try:
            client.probe(PROBE)
        except TransientError as error:
            return _outcome(error)
        except (ModelError, UsageError) as error:
            log.warning("%s is not used: %s", client.base_url, error)
            return "failed"
        return "ok"


def _outcome(error: TransientError) -> Outcome:
    return "busy" if isinstance(error, Busy) else "refused" if isinstance(error, Refused) else "failed"
