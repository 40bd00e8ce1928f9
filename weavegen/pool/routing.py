"""Which request goes to which server, and when: the pool's decisions. Pure: no I/O, no clock, no threads.

Every trace has a home, the server whose prefix cache holds what the trace has read so far. Its requests wait
for room there, the oldest trace first. A server takes new ones as long as what we have in flight there is below
its limit, and the limit follows the server's own figures: it grows while nothing waits in the server and falls
while too much does, so that a little always waits and no slot is idle. A server with room to spare and nobody
waiting for it takes over the oldest request of one that is full (it spills); the trace comes back with its next
request. A server that fails rests for a while, longer each time, and is probed before a trace's request goes there
again. Each of its traces meanwhile has a stand-in, always the same one, and comes back as well. A server that
leaves the pool is sent nothing more; what waits for it goes to stand-ins, and what is in flight there ends.

Load is counted in sequences: a request for n continuations, or with n prompts, is n sequences to vLLM.
"""

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

FIRST_LIMIT = 256.0
"""Sequences in flight at a server that has said nothing yet: what vLLM runs at once unless told otherwise."""
LEAST_LIMIT = 8.0
GROWTH, FALL = 1.25, 0.9
"""Factors on the limit after a look at the figures. It grows faster: an idle GPU costs more than a queue."""
QUEUE = 0.25
"""Waiting sequences, as a part of the running ones, above which the limit falls."""
FULL_CACHE = 0.97
"""Use of the KV cache above which the limit falls: vLLM will preempt sequences and compute them again."""
MOST_FAILURES = 3
"""Failed requests in a row after which a server is left alone; a refused connection is enough at once."""
FIRST_REST, MOST_REST = 1.0, 30.0
"""Seconds before a failing server is probed: doubled each time it fails again. Where nobody listens it is always
the first, as to ask costs nothing."""

Outcome = Literal["ok", "busy", "failed", "refused"]
"""How a request ended: answered (a refusal for good is an answer too); told to come later; lost on the way; no
connection at all."""


@dataclass(frozen=True)
class Load:
    """A server's own figures at one moment."""

    running: int
    """Sequences."""
    waiting: int
    cache: float
    """Use of the KV cache, 0 to 1."""
    preemptions: int = 0
    """Since the server was started."""


@dataclass
class Server:
    """What the pool knows of one server."""

    url: str
    limit: float = FIRST_LIMIT
    in_flight: int = 0
    """Our own sequences there."""
    load: Load | None = None
    """What it told last; None: nothing so far, or it never does."""
    capacity: float = 0.0
    """Sequences that it was seen to run at once. A queue alone is no reason to send it less: it may be computing
    the prompts of traces that are new to it."""
    failures: int = 0
    """In a row."""
    rests: int = 0
    """In a row."""
    rests_until: float | None = None
    """When it is to be probed; None: it is in use."""
    eased: float = float("-inf")
    """When its limit fell last because it called itself busy."""
    leaving: bool = False
    """It is no member of the pool any more, and is forgotten when nothing is in flight there."""
    queue: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (trace, ticket): requests that wait for room here."""

    @property
    def usable(self) -> bool:
        """Whether it may be sent anything at all."""
        return self.rests_until is None and not self.leaving

    def has_room(self, sequences: int) -> bool:
        """Whether it may be sent that much more. Alone, any request fits."""
        return self.usable and (self.in_flight == 0 or self.in_flight + sequences <= self.limit)

    @property
    def hungry(self) -> bool:
        """Whether it has slots to spare, by its own figures; by ours, if it tells none."""
        if not self.usable:
            return False
        return self.in_flight < self.limit / 2 if self.load is None else self.load.waiting == 0


@dataclass
class _Request:
    trace: int
    home: str
    sequences: int
    at: str
    """The server in whose queue it is."""


class Router:
    """The decisions of one process. Times are seconds of any clock that never runs backwards."""

    def __init__(self, urls: Iterable[str]) -> None:
        self.servers = {url: Server(url) for url in urls}
        self._requests: dict[int, _Request] = {}
        self._tickets = itertools.count()

    @property
    def members(self) -> list[Server]:
        """The servers of the pool, in the order in which they came."""
        return [server for server in self.servers.values() if not server.leaving]

    def add(self, url: str) -> None:
        """A server joins the pool. What waits for want of any goes there."""
        self.servers.setdefault(url, Server(url)).leaving = False
        for server in list(self.servers.values()):
            self._requeue(server)
            self._forget(server)

    def remove(self, url: str) -> None:
        """A server leaves the pool. Where it was the last one, what waits stays in its queue."""
        server = self.servers[url]
        server.leaving = True
        self._requeue(server)
        self._forget(server)

    def home(self, homes: Mapping[str, int]) -> str:
        """The server for a trace that begins: of those in use the one that is home to the fewest.

        `homes`: how many running traces each has. Between equals, the one with less to do. The pool must have a
        member.
        """
        usable = [server for server in self.members if server.usable]

        def load(server: Server) -> tuple[int, int, int]:
            return homes.get(server.url, 0), server.load.waiting if server.load else 0, server.in_flight

        return min(usable or self.members, key=load).url

    def ask(self, trace: int, home: str, sequences: int) -> int:
        """A request wants to go out. Returns its ticket, which `grant` will name.

        The trace with the lowest number goes first. The pool must have a member; `home` need not be one any more.
        """
        ticket = next(self._tickets)
        self._requests[ticket] = _Request(trace, home, sequences, at=home)
        self._enqueue(ticket)
        return ticket

    def withdraw(self, ticket: int) -> None:
        """A request that was not granted yet waits no longer."""
        request = self._requests.pop(ticket)
        server = self.servers[request.at]
        server.queue.remove((request.trace, ticket))
        heapq.heapify(server.queue)
        self._forget(server)

    def grant(self) -> list[tuple[int, str]]:
        """(ticket, URL) of every request that may go now: it counts as in flight from here on."""
        granted = []
        for server in self.servers.values():
            while self._fits(server, server):
                granted.append((self._take(server, server), server.url))
        for server in self.servers.values():
            while not server.queue and server.hungry and (full := self._spilling(server)) is not None:
                granted.append((self._take(server, full), server.url))
        return granted

    def done(self, url: str, sequences: int, outcome: Outcome, now: float) -> None:
        """A granted request came to its end."""
        server = self.servers[url]
        wanted = server.in_flight >= 0.8 * server.limit
        server.in_flight -= sequences
        self._forget(server)
        if not server.usable:
            return  # it was sent before; whether the server is well again, the probe tells
        if outcome == "ok":
            server.failures = 0
            if server.load is None and wanted:  # it tells nothing: more and more, until it calls itself busy
                server.limit += 1
        elif outcome == "busy":
            if now - server.eased >= 1:  # what was sent together is refused together, and counts once
                server.eased = now
                server.limit = max(LEAST_LIMIT, server.limit / 2)
        else:
            self.silent(url, outcome, now)

    def silent(self, url: str, outcome: Outcome, now: float) -> None:
        """A server in use did not answer as it should: a request, or a look at its figures."""
        server = self.servers[url]
        server.failures += 1
        if server.rests_until is None and (outcome == "refused" or server.failures >= MOST_FAILURES):
            self._rest(server, outcome, now)

    def probed(self, url: str, outcome: Outcome, now: float) -> None:
        """A server that has rested was tried."""
        server = self.servers[url]
        if outcome == "ok":
            server.failures = server.rests = 0
            server.rests_until = server.load = None
            for other in self.servers.values():
                self._requeue(other)
        else:
            self._rest(server, outcome, now)

    def told(self, url: str, load: Load) -> None:
        """A server's own figures, read just now."""
        server = self.servers[url]
        before, server.load = server.load, load
        preempted = before is not None and load.preemptions > before.preemptions
        server.capacity = max(server.capacity, load.running)
        fallen = max(LEAST_LIMIT, FALL * min(server.limit, server.in_flight))
        if load.cache >= FULL_CACHE or preempted:
            server.limit = server.capacity = fallen
        elif load.waiting > max(LEAST_LIMIT, QUEUE * load.running):
            server.limit = max(server.capacity, fallen)
        elif load.waiting == 0 and server.in_flight >= 0.8 * server.limit:
            server.limit *= GROWTH

    def _forget(self, server: Server) -> None:
        """Once it has left and nothing of it is left, nothing needs to be known of it."""
        if server.leaving and not server.in_flight and not server.queue:
            self.servers.pop(server.url, None)

    def _fits(self, server: Server, queued_at: Server) -> bool:
        """Whether the first in one server's queue may go to `server`."""
        queue = queued_at.queue
        return bool(queue) and server.has_room(self._requests[queue[0][1]].sequences)

    def _take(self, server: Server, queued_at: Server) -> int:
        _, ticket = heapq.heappop(queued_at.queue)
        server.in_flight += self._requests.pop(ticket).sequences
        return ticket

    def _spilling(self, server: Server) -> Server | None:
        """From whose queue `server` may take a request: of the full ones that with the oldest trace in it."""
        others = (other for other in self.servers.values() if not other.hungry and self._fits(server, other))
        return min(others, key=lambda other: other.queue[0], default=None)

    def _rest(self, server: Server, outcome: Outcome, now: float) -> None:
        if outcome == "refused":
            server.rests = 0
        server.rests_until = now + min(MOST_REST, FIRST_REST * 2.0**server.rests)
        server.rests += 1
        server.failures = 0
        self._requeue(server)

    def _requeue(self, server: Server) -> None:
        """A server came into use or went out of it: see again where those that wait here are to wait."""
        queue, server.queue = server.queue, []
        for _, ticket in queue:
            self._enqueue(ticket)

    def _enqueue(self, ticket: int) -> None:
        request = self._requests[ticket]
        request.at = self._stand_in(request)
        heapq.heappush(self.servers[request.at].queue, (request.trace, ticket))

    def _stand_in(self, request: _Request) -> str:
        """Its home, or what its trace uses while that one rests or is gone (by highest random weight)."""
        home = self.servers.get(request.home)
        if home is not None and home.usable:
            return request.home
        usable = [server.url for server in self.members if server.usable]

        def weight(url: str) -> bytes:
            return hashlib.sha256(f"{request.trace} {url}".encode()).digest()

        if usable:
            return max(usable, key=weight)
        if home is not None and not home.leaving:
            return request.home
        return next((server.url for server in self.members), request.at)  # without any it stays where it is


def moves(homes: Mapping[str, int], newcomer: str) -> dict[str, int]:
    """How many traces each server gives to one that joins, so that none has two more than the newcomer.

    `homes`: how many running traces each server of the pool has. The fullest give first.
    """
    left = {url: count for url, count in homes.items() if url != newcomer}
    given = dict.fromkeys(left, 0)
    gained = homes.get(newcomer, 0)
    while left and left[fullest := max(left, key=left.__getitem__)] > gained + 1:
        left[fullest] -= 1
        given[fullest] += 1
        gained += 1
    return {url: count for url, count in given.items() if count}
