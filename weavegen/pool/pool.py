"""The pool of model servers, for the threads of one process. It carries out the decisions of routing.py."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from weavegen.errors import Busy, ModelError, Refused, TransientError, Unfit, Unserved, UsageError
from weavegen.pool import metrics
from weavegen.pool.client import ModelClient
from weavegen.pool.health import Failures, Health, error_kind, one_line
from weavegen.pool.http import Http
from weavegen.pool.routing import Load, Outcome, Router

log = logging.getLogger(__name__)
T = TypeVar("T")

METRICS_INTERVAL_SECONDS = 1.0
METRICS_RETRY_SECONDS = 60.0
"""A server that did not give its metrics is asked for them again after this time, or after a probe."""
MAX_ATTEMPTS = 4
"""Attempts of a request, before its step is released to be tried later."""
BACKOFF_SECONDS = 0.25
"""Pause before the second attempt, doubled with each further one, times a random factor from 0.5 to 1.5."""
PROBE_TIMEOUT_SECONDS = 10.0
"""Time within which a server that rested must sample one token."""
NO_SERVER_TIMEOUT_SECONDS = 60.0
"""Time that a request waits while no server is in use, before its step is released."""


def ignore(problem: str) -> None:
    """Tell nobody."""


class Pool:
    """Servers that serve the same model. They may join and leave at any time. Safe to share between threads."""

    def __init__(self, urls: Iterable[str], api_key: str, model: str | None, *, timeout: float = 600.0) -> None:
        self._model, self._timeout = model, timeout
        self._keys: dict[str, str] = {}
        self._clients: dict[str, ModelClient] = {}
        """Clients of the members. A granted request keeps its client even if the server leaves."""
        self._router = Router(())
        self._lock = threading.Lock()
        self._granted: dict[int, tuple[str, ModelClient]] = {}
        self._events: dict[int, threading.Event] = {}
        self._health: dict[str, Health] = {}
        """By URL, since the last call of `take_health`."""
        self._streaks: dict[str, Failures] = {}
        """Failures by URL, since the last answer."""
        self._closed = threading.Event()
        self.set_members(dict.fromkeys(urls, api_key))

    @property
    def urls(self) -> list[str]:
        """Base URLs of the members."""
        with self._lock:
            return list(self._clients)

    def set_members(self, keys: Mapping[str, str]) -> None:
        """Replace the members. `keys`: API keys by base URL. Servers that stay are not affected.

        A server that leaves gets no more requests; in-flight requests end. Each new server gets a thread that
        reads its metrics.
        """
        with self._lock:
            for url in self._keys.keys() - keys.keys():
                self._router.remove(url)
                del self._clients[url], self._keys[url]
                self._streaks.pop(url, None)
            for url, key in keys.items():
                if self._keys.get(url) == key:
                    continue
                self._keys[url] = key
                client = self._clients[url] = ModelClient(url, key, self._model, timeout=self._timeout)
                self._router.add(url)
                watcher = (url, client, key)
                threading.Thread(target=self._watch, args=watcher, name=f"metrics {url}", daemon=True).start()
            self._grant()

    def home(self, homes: Mapping[str, int]) -> str:
        """Choose the home of a new trace. `homes`: number of running traces by server. Raises Unserved."""
        with self._lock:
            self._require_members()
            return self._router.home(homes)

    def take_health(self) -> dict[str, Health]:
        """What the servers answered since the last call, by URL."""
        with self._lock:
            taken, self._health = self._health, {}
            return taken

    def trouble(self) -> str | None:
        """Why no server is in use, in one line; None if one is."""
        with self._lock:
            return None if any(server.usable for server in self._router.members) else self._trouble()

    def with_server(
        self,
        trace: int,
        home: str,
        sequences: int,
        call: Callable[[ModelClient], T],
        tell: Callable[[str], None] = ignore,
    ) -> T:
        """Wait for a server with room for `sequences`, call `call` with its client, and return the result.

        The server is `home`, unless that is unusable or has left the pool. A TransientError is tried again
        MAX_ATTEMPTS times; other errors are raised at once. Raises Unserved if no server is in use. `tell` gets
        each failure, in one line, before the next attempt.
        """
        for attempt in range(1, MAX_ATTEMPTS + 1):
            url, client = self._admitted(trace, home, sequences)
            failure: TransientError | None = None  # other errors are answers of the server
            try:
                return call(client)
            except TransientError as error:
                failure = error
                if attempt == MAX_ATTEMPTS:
                    if isinstance(error, Refused | Busy | Unfit) or self._fails_others(trace):
                        raise Unserved(one_line(error)) from None
                    raise
                log.info("trace %d, attempt %d: %s", trace, attempt, error)
                tell(one_line(error))
            finally:
                outcome, asked = _outcome(failure)
                with self._lock:
                    self._router.report_end(url, sequences, outcome, time.monotonic(), asked)
                    self._note(url, failure, trace)
                    self._grant()
            time.sleep(BACKOFF_SECONDS * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connections and let the threads end."""
        self._closed.set()
        for client in self._clients.values():
            client.close()

    def _require_members(self) -> None:
        """Raise Unserved if there is no member. The caller holds the lock."""
        if not self._clients:
            raise Unserved("the pool has no model server: add one with `weavegen pool add URL`")

    def _fails_others(self, trace: int) -> bool:
        """Whether all members also fail the requests of other traces: then it is no fault of this trace's request."""
        with self._lock:
            streaks = [self._streaks.get(url) for url in self._clients]
            return all(streak is not None and streak.traces - {trace} for streak in streaks)

    def _note(self, url: str, error: Exception | None, trace: int | None = None) -> None:
        """Count a request: answered, or failed with an error. The caller holds the lock."""
        health = self._health.setdefault(url, Health())
        if error is None:
            health.ok()
            server = self._router.servers.get(url)
            if server is None or server.usable:  # while it rests, the answer is that of an older request
                self._streaks.pop(url, None)
        else:
            now = time.monotonic()
            health.failed(error, now)
            self._streaks.setdefault(url, Failures()).add(error, now, trace)

    def _trouble(self) -> str:
        """The last failures of the members. The caller holds the lock."""
        now = time.monotonic()
        told = (self._streaks[url].told(now) for url in self._clients if url in self._streaks)
        return "; ".join(told) or f"no server is in use: {', '.join(self._clients)}"

    def _admitted(self, trace: int, home: str, sequences: int) -> tuple[str, ModelClient]:
        """Wait until a request is granted. Returns the server's URL and client; the request is in flight there."""
        event = threading.Event()
        with self._lock:
            self._require_members()
            ticket = self._router.ask(trace, home, sequences)
            self._events[ticket] = event
            self._grant()
        try:
            while not event.wait(NO_SERVER_TIMEOUT_SECONDS):
                with self._lock:
                    in_use = any(server.usable for server in self._router.members)
                    if ticket not in self._granted and not in_use:
                        self._router.withdraw(ticket)
                        self._require_members()
                        raise Unserved(self._trouble())
            return self._granted.pop(ticket)
        finally:
            with self._lock:
                del self._events[ticket]

    def _grant(self) -> None:
        """Wake the requests that may be sent now. The caller holds the lock."""
        for ticket, url in self._router.grant():
            self._granted[ticket] = url, self._clients[url]
            self._events[ticket].set()

    def _watch(self, url: str, client: ModelClient, key: str) -> None:
        """Read a server's metrics, or probe it if it failed, and grant requests, until it leaves the pool."""
        asks_at, http = 0.0, Http(key, 5.0)
        while not self._closed.wait(METRICS_INTERVAL_SECONDS * random.uniform(0.8, 1.2)):
            with self._lock:
                if self._clients.get(url) is not client:
                    break
                rests_until = self._router.servers[url].rests_until
            if rests_until is not None and time.monotonic() < rests_until:
                continue
            load: Load | None = None
            failure: Exception | None = None
            try:
                if rests_until is not None:
                    client.probe(PROBE_TIMEOUT_SECONDS)
                    asks_at = 0.0
                elif time.monotonic() >= asks_at:
                    load = metrics.read(url, http)
            except (ModelError, UsageError, Unfit) as error:
                if rests_until is None:  # Unfit: a gateway may guard all that is not below /v1
                    if not asks_at:
                        log.warning("%s: without metrics, its load grows until it is busy", error)
                    asks_at = time.monotonic() + METRICS_RETRY_SECONDS
                else:
                    log.warning("%s is not used: %s", url, error)
                    failure = error
            except TransientError as error:
                failure = error
            except Exception:  # if this thread ended, a resting server would never be probed again
                log.exception("%s can't be watched", url)
                rests_until = None  # no probe to report
            outcome, asked = _outcome(failure)
            with self._lock:
                if self._clients.get(url) is not client:
                    break
                if rests_until is not None:
                    self._router.report_probe(url, outcome, time.monotonic(), asked)
                elif failure is not None:
                    self._router.report_failure(url, outcome, time.monotonic())
                elif load is not None:
                    self._router.report_load(url, load)
                else:  # it has no metrics, or none any more
                    self._router.servers[url].load = None
                if failure is not None:
                    self._note(url, failure)
                self._grant()
        http.close()


OUTCOMES: Mapping[str, Outcome] = {"busy": "busy", "refused": "refused", "unfit": "unfit"}
"""By TransientError.kind."""


def _outcome(error: Exception | None) -> tuple[Outcome, float | None]:
    """How a request ended, and the seconds for which a busy server asks to be left alone."""
    if error is None:
        return "ok", None
    return OUTCOMES.get(error_kind(error), "failed"), error.seconds if isinstance(error, Busy) else None
