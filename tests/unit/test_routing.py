"""The pool's decisions against simulated servers, in simulated time."""

import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from weavegen.pool.routing import MAX_ASKED_REST_SECONDS, MAX_BUSY, MAX_FAILURES, Load, Router, moves

NAMES = ("a", "b", "c", "d")


@dataclass
class Simulated:
    """A server with `slots` slots. A request has `n` sequences, each with a duration of its own."""

    slots: int
    pace: float = 1.0
    """Seconds of work that it does in a second."""
    prompt: float = 0.0
    """Seconds that the prompt of a trace that is new to it takes; it computes one prompt at a time."""
    alive: bool = True
    left: list[list[float]] = field(default_factory=list)
    """Per request, the seconds of work left of each sequence, oldest first; only the first `slots` run."""
    known: set[int] = field(default_factory=set)
    """Traces whose prompts are in its cache."""
    prompts: dict[int, float] = field(default_factory=dict)
    """Seconds left of prompts, by the id of the request's list in `left`: its sequences wait for them."""

    def load(self) -> Load:
        sequences = sum(map(len, self.left))
        ready = sum(len(request) for request in self.left if id(request) not in self.prompts)
        return Load(
            running=min(self.slots, ready),
            waiting=max(0, sequences - min(self.slots, ready)),
            cache=min(1.0, sequences / self.slots) * 0.9,
        )

    def receive(self, trace: int, request: list[float]) -> None:
        if self.prompt and trace not in self.known:
            self.prompts[id(request)] = self.prompt
        self.known.add(trace)
        self.left.append(request)

    def compute(self, seconds: float) -> None:
        """Process prompts for this time."""
        for request in self.left:
            if seconds > 0 and id(request) in self.prompts:
                left = self.prompts.pop(id(request)) - seconds
                seconds = -left
                if left > 0:
                    self.prompts[id(request)] = left

    def die(self) -> None:
        self.alive = False
        for gone in (self.left, self.known, self.prompts):
            gone.clear()


class World:
    """Traces that request again as soon as they have an answer, over simulated servers."""

    STEP = 0.05

    def __init__(self, servers: dict[str, Simulated], traces: int, *, seconds: float = 4.0, seed: int = 1) -> None:
        self.servers, self.router, self.now = servers, Router(servers), 0.0
        self.random, self.seconds = random.Random(seed), seconds
        self.homes: dict[int, str] = {}
        counts: Counter[str] = Counter()
        for trace in range(traces):
            self.homes[trace] = self.router.home(counts)
            counts[self.homes[trace]] += 1
        self.busy: Counter[str] = Counter()
        self.sent: list[tuple[float, int, str]] = []
        self.done: list[tuple[float, int]] = []
        self.failed: Counter[int] = Counter()
        self._waiting: dict[int, tuple[int, int]] = {}
        self._flying: list[tuple[int, int, str, list[float]]] = []
        self._again: list[tuple[float, int]] = [(0.0, trace) for trace in range(traces)]

    def run(self, seconds: float, at: Callable[[float], None] | None = None) -> None:
        """Run for some seconds. `at` is called with the time at every step."""
        end = self.now + seconds
        while self.now < end:
            if at is not None:
                at(self.now)
            while self._again and self._again[0][0] <= self.now:
                _, trace = heapq.heappop(self._again)
                n = self.random.choice((4, 8, 16))
                self._waiting[self.router.ask(trace, self.homes[trace], n)] = (trace, n)
            if int(self.now / self.STEP) % 20 == 0:
                for member in self.router.members:
                    name, rests_until = member.url, member.rests_until
                    server = self.servers[name]
                    if rests_until is None and server.alive:
                        self.router.report_load(name, server.load())
                    elif rests_until is None:
                        self.router.report_failure(name, "refused", self.now)
                    elif self.now >= rests_until:
                        self.router.report_probe(name, "ok" if server.alive else "refused", self.now)
            for ticket, name in self.router.grant():
                trace, n = self._waiting.pop(ticket)
                work = [self.random.uniform(0.2, 1.8) * self.seconds for _ in range(n)]
                self._flying.append((trace, n, name, work))
                self.servers[name].receive(trace, work)
                self.sent.append((self.now, trace, name))
            self._work()
            self.now += self.STEP

    def _work(self) -> None:
        for name, server in self.servers.items():
            free = server.slots if server.alive else 0
            server.compute(self.STEP)
            for request in server.left:
                if id(request) in server.prompts:
                    continue
                for position in range(min(free, len(request))):
                    request[position] -= self.STEP * server.pace
                used = min(free, len(request))
                free -= used
                self.busy[name] += used
                request[:] = [left for left in request if left > 0]
            server.left = [request for request in server.left if request]
        flying = []
        for trace, n, name, work in self._flying:
            if not self.servers[name].alive:
                self.router.report_end(name, n, "failed", self.now)
                self.failed[trace] += 1
                heapq.heappush(self._again, (self.now + 0.2, trace))
            elif not work:
                self.router.report_end(name, n, "ok", self.now)
                self.done.append((self.now, n))
                heapq.heappush(self._again, (self.now + 0.1, trace))
            else:
                flying.append((trace, n, name, work))
        self._flying = flying

    def use(self, name: str, seconds: float) -> float:
        """The share of a server's slots that were in use."""
        return self.busy[name] * self.STEP / (seconds * self.servers[name].slots)

    def finished(self, first: float, last: float) -> int:
        """Sequences finished between two moments."""
        return sum(n for at, n in self.done if first <= at < last)


def four(slots: int = 64) -> dict[str, Simulated]:
    return {name: Simulated(slots) for name in NAMES}


def warm(world: World, seconds: float = 20) -> World:
    world.run(seconds)
    world.busy.clear()
    return world


def test_full_servers_stay_full_and_even() -> None:
    world = warm(World(four(), traces=256))
    world.run(60)
    uses = [world.use(name, 60) for name in NAMES]
    assert min(uses) > 0.97
    at_home = sum(name == world.homes[trace] for at, trace, name in world.sent if at > 20)
    assert at_home / sum(at > 20 for at, _, _ in world.sent) > 0.97


def test_a_server_queues_no_more_than_keeps_it_full() -> None:
    world = warm(World({"a": Simulated(64)}, traces=256), 40)
    seen = []
    world.run(30, lambda now: seen.append(world.servers["a"].load().waiting))
    assert sum(seen) / len(seen) < 40
    assert world.use("a", 30) > 0.97


def test_few_traces_stay_at_their_home_servers() -> None:
    world = World(four(), traces=16)
    world.run(30)
    assert all(name == world.homes[trace] for _, trace, name in world.sent)
    assert Counter(world.homes.values()) == dict.fromkeys(NAMES, 4)


def test_uneven_load_spills_to_servers_with_free_slots() -> None:
    world = World(four(), traces=64)
    world.homes = dict.fromkeys(world.homes, "a")
    warm(world)
    world.run(60)
    assert all(world.use(name, 60) > 0.8 for name in NAMES)


def test_a_slow_server_passes_its_surplus_to_others() -> None:
    servers = four()
    servers["a"].pace = 0.25
    world = warm(World(servers, traces=100), 40)
    world.run(60)
    best = 3.25 * 64 * 60 / world.seconds
    assert world.finished(40, 100) > 0.9 * best


def test_a_server_that_dies_costs_only_its_share_and_its_traces_return() -> None:
    world = World(four(), traces=128)

    world.run(130, dead("b", 40, 70, world))
    before, without, after = world.finished(20, 40), world.finished(45, 65), world.finished(90, 110)
    assert 0.65 * before < without < 0.85 * before
    assert after > 0.93 * before
    assert not any(name == "b" for at, _, name in world.sent if 41 < at < 69)
    home = [trace for trace, name in world.homes.items() if name == "b"]
    late = [name for at, trace, name in world.sent if trace in home and at > 90]
    assert late.count("b") / len(late) > 0.9
    substitutes = {trace: {name for at, t, name in world.sent if t == trace and 45 < at < 65} for trace in home}
    assert sum(len(names) for names in substitutes.values()) / len(home) < 1.6
    assert max(world.failed.values()) <= 2


def test_the_oldest_trace_goes_first() -> None:
    router = Router(["a"])
    router.servers["a"].limit = 8
    first = router.ask(5, "a", 8)
    assert router.grant() == [(first, "a")]
    young, old = router.ask(9, "a", 8), router.ask(2, "a", 8)
    assert router.grant() == []
    router.report_end("a", 8, "ok", 1.0)
    assert router.grant() == [(old, "a")]
    router.report_end("a", 8, "ok", 2.0)
    assert router.grant() == [(young, "a")]


def test_a_request_larger_than_the_limit_goes_alone() -> None:
    router = Router(["a"])
    router.servers["a"].limit = 8
    small, big = router.ask(1, "a", 4), router.ask(2, "a", 64)
    assert router.grant() == [(small, "a")]
    router.report_end("a", 4, "ok", 1.0)
    assert router.grant() == [(big, "a")]


def test_a_withdrawn_request_is_not_granted() -> None:
    router = Router(["a"])
    router.servers["a"].limit = 8
    one, two, three = (router.ask(trace, "a", 8) for trace in (1, 2, 3))
    router.withdraw(two)
    assert router.grant() == [(one, "a")]
    router.report_end("a", 8, "ok", 1.0)
    assert router.grant() == [(three, "a")]


def test_the_circuit_breaker_opens_probes_and_closes() -> None:
    router = Router(["a", "b"])
    server = router.servers["a"]
    for _ in range(MAX_FAILURES):
        router.ask(1, "a", 1)
        assert [url for _, url in router.grant()] == ["a"]
        router.report_end("a", 1, "failed", 10.0)
    router.ask(1, "a", 1)
    assert [url for _, url in router.grant()] == ["b"]
    rests = []
    now = 10.0
    for _ in range(8):
        assert server.rests_until is not None
        rests.append(server.rests_until - now)
        now = server.rests_until
        router.report_probe("a", "failed", now)
    assert rests == [1, 2, 4, 8, 16, 30, 30, 30]
    router.ask(1, "a", 1)
    assert [url for _, url in router.grant()] == ["b"]
    router.report_probe("a", "ok", now)
    tickets = [router.ask(trace, "a", 1) for trace in (1, 2, 3)]
    assert router.grant() == [(ticket, "a") for ticket in tickets]


def test_while_no_server_listens_one_is_probed_every_second() -> None:
    router = Router(["a"])
    router.report_failure("a", "refused", 0.0)
    for now in range(1, 60):
        assert router.servers["a"].rests_until == now
        router.report_probe("a", "refused", float(now))


def test_one_unfit_answer_is_enough_and_a_rest_may_be_asked_for() -> None:
    router = Router(["a", "b", "c"])
    router.report_failure("a", "unfit", 0.0)
    for url, asked in (("b", 7.0), ("c", 1e9)):
        router.ask(1, url, 1)
        assert [to for _, to in router.grant()] == [url]
        router.report_end(url, 1, "busy", 0.0, asked)
    assert [server.rests_until for server in router.members] == [1.0, 7.0, MAX_ASKED_REST_SECONDS]
    router.report_probe("b", "busy", 7.0, 3.0)
    assert router.servers["b"].rests_until == 10.0


def test_a_server_that_is_always_busy_rests_at_last() -> None:
    router = Router(["a"])
    for now in range(MAX_BUSY):
        assert router.servers["a"].usable
        for trace in range(5):
            router.ask(trace, "a", 1)
        for _ in router.grant():
            router.report_end("a", 1, "busy", float(now))
    assert not router.servers["a"].usable


def test_the_success_of_an_old_request_does_not_end_a_servers_rest() -> None:
    router = Router(["a"])
    router.ask(1, "a", 2)
    router.grant()
    router.report_failure("a", "refused", 0.0)
    router.report_end("a", 2, "ok", 0.5)
    assert (router.servers["a"].in_flight, router.servers["a"].rests_until) == (0, 1.0)


def test_requests_that_fail_together_count_once() -> None:
    router = Router(["a"])
    for trace in range(20):
        router.ask(trace, "a", 1)
    assert len(router.grant()) == 20
    for _ in range(20):
        router.report_end("a", 1, "failed", 0.0)
    assert router.servers["a"].rests == 1


def test_while_all_servers_are_down_requests_wait_for_the_first_that_returns() -> None:
    router = Router(["a", "b"])
    for name in ("a", "b"):
        router.report_failure(name, "refused", 0.0)
    tickets = [router.ask(trace, "a", 4) for trace in (1, 2)]
    assert router.grant() == []
    router.report_probe("b", "ok", 1.0)
    assert router.grant() == [(ticket, "b") for ticket in tickets]  # though their home server is down


def dead(name: str, first: float, last: float, world: World) -> Callable[[float], None]:
    """What happens to a server that is dead from `first` to `last`."""

    def fate(now: float) -> None:
        server = world.servers[name]
        if first <= now < last:
            server.die()
        else:
            server.alive = True

    return fate


def test_a_server_that_returns_gets_requests_though_no_trace_has_it_as_home() -> None:
    world = World({name: Simulated(64, prompt=1.0) for name in NAMES}, traces=256)
    world.run(91, dead("b", 60, 90, world))
    world.busy.clear()
    world.run(15)
    assert world.use("b", 15) > 0.5


def test_waiting_requests_go_home_when_their_server_returns() -> None:
    router = Router(["a", "b"])
    router.report_failure("a", "refused", 0.0)
    router.servers["a"].limit = router.servers["b"].limit = 1
    first, of_b, of_a = router.ask(1, "b", 1), router.ask(2, "b", 1), router.ask(3, "a", 1)
    assert router.grant() == [(first, "b")]
    router.report_probe("a", "ok", 1.0)
    assert router.grant() == [(of_a, "a")]
    router.report_end("b", 1, "ok", 2.0)
    assert router.grant() == [(of_b, "b")]


def test_waiting_requests_leave_a_server_that_dies() -> None:
    router = Router(["a", "b"])
    router.servers["a"].limit = 1
    first, second = router.ask(1, "a", 1), router.ask(2, "a", 1)
    router.report_load("b", Load(8, 1, 0.5))
    assert router.grant() == [(first, "a")]
    router.report_failure("a", "refused", 1.0)
    assert router.grant() == [(second, "b")]


@pytest.mark.parametrize(
    "load", [Load(running=64, waiting=40, cache=0.5), Load(64, 0, 0.99), Load(64, 0, 0.5, preemptions=3)]
)
def test_a_server_under_pressure_gets_fewer_requests(load: Load) -> None:
    router = Router(["a"])
    router.report_load("a", Load(0, 0, 0.0))
    router.ask(1, "a", 100)
    router.grant()
    router.report_load("a", load)
    assert router.servers["a"].limit == pytest.approx(90)


def test_the_limit_of_a_server_without_metrics_grows_until_it_is_busy() -> None:
    router = Router(["a"])
    server = router.servers["a"]
    server.limit = 10
    for _ in range(5):
        router.ask(1, "a", 10)
        router.grant()
        router.report_end("a", 10, "ok", 0.0)
    assert server.limit == 13  # the limit grows only while it is used up
    for _ in range(4):
        router.report_end("a", 0, "busy", 1.0)
    assert server.limit == 8


def test_a_server_that_joins_gets_new_traces_and_spilled_requests() -> None:
    router = Router(["a"])
    router.servers["a"].limit = 8
    first, second = router.ask(1, "a", 8), router.ask(2, "a", 8)
    assert router.grant() == [(first, "a")]
    router.add("b")
    assert router.home({"a": 2}) == "b"
    assert router.grant() == [(second, "b")]


def test_a_leaving_server_gets_no_new_requests_and_finishes_its_own() -> None:
    router = Router(["a", "b"])
    router.servers["a"].limit = 8
    running, waiting = router.ask(1, "a", 8), router.ask(2, "a", 8)
    router.report_load("b", Load(8, 1, 0.5))  # it gets no requests of other traces
    assert router.grant() == [(running, "a")]
    router.remove("a")
    assert router.grant() == [(waiting, "b")]
    assert [server.url for server in router.members] == ["b"]
    assert router.home({"a": 0, "b": 9}) == "b"
    late = router.ask(3, "a", 1)  # its trace still has the old home
    assert router.grant() == [(late, "b")]
    router.report_end("a", 8, "failed", 1.0)
    assert list(router.servers) == ["b"]


def test_after_the_last_server_left_waiting_requests_go_to_the_next_one() -> None:
    router = Router(["a"])
    router.servers["a"].limit = 1
    running, waiting, tired = (router.ask(trace, "a", 1) for trace in (1, 2, 3))
    assert router.grant() == [(running, "a")]
    router.remove("a")
    router.report_end("a", 1, "ok", 1.0)
    router.withdraw(tired)
    assert router.grant() == []
    router.add("b")
    assert router.grant() == [(waiting, "b")]
    assert list(router.servers) == ["b"]


def test_a_server_that_returns_before_it_has_finished_keeps_its_counts() -> None:
    router = Router(["a"])
    router.ask(1, "a", 4)
    router.grant()
    router.remove("a")
    router.add("a")
    assert router.servers["a"].in_flight == 4
    router.report_end("a", 4, "ok", 1.0)
    assert [(server.url, server.in_flight) for server in router.members] == [("a", 0)]


def test_while_servers_join_and_leave_nothing_is_lost_and_no_slot_idles() -> None:
    world = warm(World(four(), traces=256))
    gone, sent = world.servers["d"], len(world.sent)
    world.router.remove("d")
    world.run(30)
    assert all(name != "d" for _, _, name in world.sent[sent:])
    assert (gone.left, "d" in world.router.servers) == ([], False)
    world.busy.clear()
    world.run(30)
    assert all(world.use(name, 30) > 0.97 for name in "abc")
    world.router.add("d")
    counts = Counter(world.homes.values())
    for home, number in moves(counts, "d").items():
        for trace in [trace for trace, name in world.homes.items() if name == home][:number]:
            world.homes[trace] = "d"
    world.run(10)
    world.busy.clear()
    world.run(30)
    assert all(world.use(name, 30) > 0.97 for name in NAMES)
    assert not world.failed


@pytest.mark.parametrize(
    ("homes", "given"),
    [
        ({}, {}),
        ({"a": 1}, {}),
        ({"a": 2}, {"a": 1}),
        ({"a": 64}, {"a": 32}),
        ({"a": 6, "b": 0}, {"a": 3}),
        ({"a": 5, "b": 5}, {"a": 2, "b": 1}),
        ({"a": 4, "new": 3}, {}),
    ],
)
def test_running_traces_are_shared_with_a_new_server(homes: dict[str, int], given: dict[str, int]) -> None:
    assert moves(homes, "new") == given
