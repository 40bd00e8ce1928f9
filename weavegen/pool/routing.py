"""Decides which request goes to which server, and when. Pure: no I/O, no clock, no threads.

Home. Every trace has a home, the server whose prefix cache holds the trace's prompt. Its requests queue there,
those of the oldest trace first.

Limit. A server gets requests while our sequences in flight there are below its limit. The limit follows the
server's metrics: it grows while no sequence waits in the server and falls while too many wait, so that a few
always wait and no slot is idle.

Spilling. A server with spare slots and an empty queue takes the oldest request from the queue of a server that is
full. The trace's next request goes to its home again.

Failures. A server that fails rests, longer each time or for as long as it asks, and is probed before it gets requests
again. Meanwhile each of its traces has a stand-in, always the same server, and returns to its home afterwards. A server
that leaves the pool gets no more requests: queued ones move to stand-ins, and in-flight ones end there.

Load is counted in sequences: for vLLM, a request for n continuations or with n prompts is n sequences.
"""

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

INITIAL_LIMIT = 256.0
"""Initial limit on sequences in flight at a server: vLLM's default for sequences in a batch."""
MIN_LIMIT = 8.0
GROWTH, DECREASE = 1.25, 0.9
"""Factors on the limit when metrics are read. It grows faster: an idle GPU costs more than a queue."""
MAX_WAITING_SHARE = 0.25
"""The limit falls if more sequences wait than this fraction of the running ones."""
MAX_CACHE_USAGE = 0.97
"""The limit falls at this KV cache usage (0 to 1): vLLM would preempt sequences and compute them again."""
MAX_FAILURES = 3
"""Consecutive failures after which a server rests. One refused connection is enough, or one unfit answer."""
MAX_BUSY = 12
"""Seconds in a row with nothing but busy answers after which a server rests. Usually fewer requests are enough."""
MAX_ASKED_REST_SECONDS = 120.0
"""Longest rest that a server can ask for."""
FIRST_REST_SECONDS, MAX_REST_SECONDS = 1.0, 30.0
"""Seconds before a failing server is probed, doubled with each failed probe. After a refused connection always the
first value: such a probe costs nothing."""

Outcome = Literal["ok", "busy", "failed", "refused", "unfit"]
"""How a request ended. ok: answered, perhaps with an error; busy: the server is overloaded; failed: the server
failed or the connection was lost; refused: no connection; unfit: no request can succeed before somebody acts."""


@dataclass(frozen=True)
class Load:
    """A server's metrics at one moment."""

    running: int
    """Sequences in the batch."""
    waiting: int
    """Sequences that wait for a place in the batch."""
    cache: float
    """KV cache usage, 0 to 1."""
    preemptions: int = 0
    """Since the server's start."""


@dataclass
class Server:
    """The pool's knowledge of a server."""

    url: str
    limit: float = INITIAL_LIMIT
    in_flight: int = 0
    """Our sequences there."""
    load: Load | None = None
    """Latest metrics; None: none so far, or the server has none."""
    capacity: float = 0.0
    """Most sequences that the server ran at once. Waiting sequences do not reduce the limit below it: the server
    may be computing the prompts of traces that are new to it."""
    failures: int = 0
    """Consecutive failures."""
    rests: int = 0
    """Consecutive rests."""
    rests_until: float | None = None
    """When to probe it; None: it is in use."""
    last_reduction: float = float("-inf")
    """When its limit was last reduced because the server was busy."""
    leaving: bool = False
    """It has left the pool. It is forgotten when nothing is in flight or queued there."""
    queue: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (trace, ticket): requests that wait here."""

    @property
    def usable(self) -> bool:
        """Whether it may get requests at all."""
        return self.rests_until is None and not self.leaving

    @property
    def has_spare_slots(self) -> bool:
        """Whether it has spare slots, by its metrics; without metrics, by our sequences in flight."""
        if not self.usable:
            return False
        return self.in_flight < self.limit / 2 if self.load is None else self.load.waiting == 0


@dataclass
class _Request:
    trace: int
    home: str
    sequences: int
    at: str
    """The server whose queue it is in."""


class Router:
    """The decisions of one process. Times are seconds of a monotonic clock."""

    def __init__(self, urls: Iterable[str]) -> None:
        self.servers = {url: Server(url) for url in urls}
        self._requests: dict[int, _Request] = {}
        self._tickets = itertools.count()

    @property
    def members(self) -> list[Server]:
        """The servers of the pool, in the order in which they joined."""
        return [server for server in self.servers.values() if not server.leaving]

    def add(self, url: str) -> None:
        """Add a server to the pool, and choose queues again for waiting requests."""
        self.servers.setdefault(url, Server(url)).leaving = False
        for server in list(self.servers.values()):
            self._requeue(server)
            self._forget(server)

    def remove(self, url: str) -> None:
        """Remove a server from the pool. If it was the last one, waiting requests stay in its queue."""
        server = self.servers[url]
        server.leaving = True
        self._requeue(server)
        self._forget(server)

    def home(self, homes: Mapping[str, int]) -> str:
        """Choose the home of a new trace: the usable server that is home to the fewest, then the least loaded one.

        `homes`: number of running traces by server. The pool must have a member.
        """
        usable = [server for server in self.members if server.usable]

        def load(server: Server) -> tuple[int, int, int]:
            return homes.get(server.url, 0), server.load.waiting if server.load else 0, server.in_flight

        return min(usable or self.members, key=load).url

    def ask(self, trace: int, home: str, sequences: int) -> int:
        """Queue a request. Returns its ticket, which `grant` will return.

        The trace with the lowest number goes first. The pool must have a member; `home` may have left it.
        """
        ticket = next(self._tickets)
        self._requests[ticket] = _Request(trace, home, sequences, at=home)
        self._enqueue(ticket)
        return ticket

    def withdraw(self, ticket: int) -> None:
        """Take a request that was not granted out of its queue."""
        request = self._requests.pop(ticket)
        server = self.servers[request.at]
        server.queue.remove((request.trace, ticket))
        heapq.heapify(server.queue)
        self._forget(server)

    def grant(self) -> list[tuple[int, str]]:
        """Return (ticket, URL) of every request that may be sent now. It counts as in flight from now on."""
        granted = []
        for server in self.servers.values():
            while self._fits(server, server):
                granted.append((self._take(server, server), server.url))
        for server in self.servers.values():
            while not server.queue and server.has_spare_slots and (full := self._spilling(server)) is not None:
                granted.append((self._take(server, full), server.url))
        return granted

    def report_end(self, url: str, sequences: int, outcome: Outcome, now: float, asked: float | None = None) -> None:
        """Report the end of a granted request. `asked`: seconds for which a busy server asks to be left alone."""
        server = self.servers[url]
        saturated = server.in_flight >= 0.8 * server.limit
        server.in_flight -= sequences
        self._forget(server)
        if not server.usable:
            return  # the request was sent before the rest; only a probe ends the rest
        if outcome == "ok":
            server.failures = 0
            if server.load is None and saturated:  # without metrics, the limit grows until the server is busy
                server.limit += 1
        elif outcome == "busy":
            if now - server.last_reduction >= 1:  # requests sent together are refused together
                server.last_reduction = now
                server.limit = max(MIN_LIMIT, server.limit / 2)
                server.failures += 1
            if asked or server.failures >= MAX_BUSY:
                self._rest(server, outcome, now, asked)
        else:
            self.report_failure(url, outcome, now)

    def report_failure(self, url: str, outcome: Outcome, now: float) -> None:
        """Report that a request to a server failed, or reading its metrics."""
        server = self.servers[url]
        server.failures += 1
        if server.rests_until is None and (outcome in ("refused", "unfit") or server.failures >= MAX_FAILURES):
            self._rest(server, outcome, now)

    def report_probe(self, url: str, outcome: Outcome, now: float, asked: float | None = None) -> None:
        """Report the probe of a server that rested. `asked`: as for `report_end`."""
        server = self.servers[url]
        if outcome == "ok":
            server.failures = server.rests = 0
            server.rests_until = server.load = None
            for other in self.servers.values():
                self._requeue(other)
        else:
            self._rest(server, outcome, now, asked)

    def report_load(self, url: str, load: Load) -> None:
        """Report a server's metrics, and adapt its limit."""
        server = self.servers[url]
        before, server.load = server.load, load
        preempted = before is not None and load.preemptions > before.preemptions
        server.capacity = max(server.capacity, load.running)
        reduced = max(MIN_LIMIT, DECREASE * min(server.limit, server.in_flight))
        if load.cache >= MAX_CACHE_USAGE or preempted:
            server.limit = server.capacity = reduced
        elif load.waiting > max(MIN_LIMIT, MAX_WAITING_SHARE * load.running):
            server.limit = max(server.capacity, reduced)
        elif load.waiting == 0 and server.in_flight >= 0.8 * server.limit:
            server.limit *= GROWTH

    def _forget(self, server: Server) -> None:
        """Drop a server that has left, once nothing is in flight or queued there."""
        if server.leaving and not server.in_flight and not server.queue:
            self.servers.pop(server.url, None)

    def _fits(self, server: Server, queued_at: Server) -> bool:
        """Whether the first request in the queue of `queued_at` may go to `server`: any, if nothing is in flight."""
        if not queued_at.queue or not server.usable:
            return False
        sequences = self._requests[queued_at.queue[0][1]].sequences
        return server.in_flight == 0 or server.in_flight + sequences <= server.limit

    def _take(self, server: Server, queued_at: Server) -> int:
        _, ticket = heapq.heappop(queued_at.queue)
        server.in_flight += self._requests.pop(ticket).sequences
        return ticket

    def _spilling(self, server: Server) -> Server | None:
        """Return the full server from whose queue `server` may take a request: the one with the oldest trace."""
        busy = (other for other in self.servers.values() if not other.has_spare_slots)
        full = (other for other in busy if self._fits(server, other))
        return min(full, key=lambda other: other.queue[0], default=None)

    def _rest(self, server: Server, outcome: Outcome, now: float, asked: float | None = None) -> None:
        if outcome == "refused":
            server.rests = 0
        seconds = min(MAX_REST_SECONDS, FIRST_REST_SECONDS * 2.0 ** min(server.rests, 10))
        server.rests_until = now + (seconds if asked is None else min(MAX_ASKED_REST_SECONDS, max(1.0, asked)))
        server.rests += 1
        server.failures = 0
        self._requeue(server)

    def _requeue(self, server: Server) -> None:
        """Choose queues again for the requests that wait here, after a server became usable or unusable."""
        queue, server.queue = server.queue, []
        for _, ticket in queue:
            self._enqueue(ticket)

    def _enqueue(self, ticket: int) -> None:
        request = self._requests[ticket]
        request.at = self._stand_in(request)
        heapq.heappush(self.servers[request.at].queue, (request.trace, ticket))

    def _stand_in(self, request: _Request) -> str:
        """Return the request's home or, while that is unusable, the trace's stand-in (by rendezvous hashing)."""
        home = self.servers.get(request.home)
        if home is not None and home.usable:
            return request.home
        usable = [server.url for server in self.members if server.usable]
        if usable:
            return max(usable, key=lambda url: hashlib.sha256(f"{request.trace} {url}".encode()).digest())
        if home is not None and not home.leaving:
            return request.home
        return next((server.url for server in self.members), request.at)  # without members it stays where it is


def moves(homes: Mapping[str, int], newcomer: str) -> dict[str, int]:
    """Return how many traces each server gives to one that joins, so that none has two more than the newcomer.

    `homes`: number of running traces by server. The server with the most gives first.
    """
    left = {url: count for url, count in homes.items() if url != newcomer}
    moved = dict.fromkeys(left, 0)
    gained = homes.get(newcomer, 0)
    while left and left[fullest := max(left, key=left.__getitem__)] > gained + 1:
        left[fullest] -= 1
        moved[fullest] += 1
        gained += 1
    return {url: count for url, count in moved.items() if count}
