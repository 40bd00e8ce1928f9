"""Continuous batching: every step gives each running continuation a token, whichever request it belongs to."""

import heapq
import itertools
import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from weavegen.nano import sampling
from weavegen.nano.attention import Continuations, PrefixCache, Prompt
from weavegen.nano.counters import Counters
from weavegen.nano.llama import Floats, Ids, Llama
from weavegen.nano.sampling import Sampling
from weavegen.nano.texts import Texts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is asked: continuations of a prompt."""

    prompt: Ids
    n: int
    most: int
    """Tokens of a continuation."""
    how: Sampling
    seed: int
    stops: tuple[bytes, ...] = ()
    end: int | None = None
    """The token that ends a text."""
    top: int = 0
    """Of how many of the likeliest tokens logprobs are wanted, beside the sampled one's."""
    ids: tuple[int, ...] = ()
    """Of which further tokens."""
    priority: int = 0
    """Lower: earlier."""


@dataclass
class Continuation:
    """What came of it."""

    ids: list[int] = field(default_factory=list)
    tops: list[dict[int, float]] = field(default_factory=list)
    """For each of `ids`: logprobs by id, its own among them."""
    text: bytearray = field(default_factory=bytearray)
    """Without the stop string."""
    finish: str = ""
    """`stop` or `length`."""
    stop: bytes | None = None
    """The stop string that ended it."""


@dataclass
class Served:
    """The answer to an order."""

    continuations: list[Continuation]
    cached: int
    """Tokens of the prompt that the prefix cache held."""


class _Running:
    """An order whose continuations are being sampled."""

    def __init__(self, order: Order, over: "Future[Served]", model: Llama, cache: PrefixCache) -> None:
        """Reads the prompt."""
        self.order, self.over = order, over
        prompt = Prompt(order.prompt, model.shape)
        self.cached = cache.find(prompt)
        self.logits = np.repeat(prompt.read(model), order.n, axis=0)
        cache.keep(prompt)
        self.written = [Continuation() for _ in range(order.n)]
        self.rows = np.arange(order.n)
        """Which of them go on."""
        self.state = Continuations(prompt, model.shape, order.n)
        self._chances = [np.random.default_rng([order.seed, number]) for number in range(order.n)]
        self._seen = np.zeros((order.n, model.shape.vocabulary), bool)
        self._seen[:, order.prompt] = True

    def draw(self, texts: Texts) -> int:
        """Give each row its next token, by `logits`; those that are over are left out. Returns how many."""
        order, rows = self.order, self.rows
        chance = np.array([self._chances[row].random() for row in rows])
        tokens = sampling.draw(self.logits, self._seen[rows], order.how, chance)
        self._seen[rows, tokens] = True
        told = sampling.logprobs(self.logits)
        for row, token, logprobs in zip(rows, tokens, told, strict=True):
            _add(self.written[row], order, int(token), logprobs, texts)
        going = np.flatnonzero([not self.written[row].finish for row in rows])
        if len(going) < len(rows):
            self.rows = rows[going]
            self.state.keep(going)
        return len(tokens)

    @property
    def last(self) -> Ids:
        """The last token of each row that goes on."""
        return np.array([self.written[row].ids[-1] for row in self.rows], np.int64)


def _add(to: Continuation, order: Order, token: int, logprobs: Floats, texts: Texts) -> None:
    """Put a token behind a continuation, and end it if that is its last."""
    likeliest = np.argsort(-logprobs, kind="stable")[: order.top] if order.top else ()
    to.ids.append(token)
    to.tops.append({int(number): float(logprobs[number]) for number in (token, *likeliest, *order.ids)})
    if token == order.end:
        to.finish = "stop"
        return
    before = len(to.text)
    to.text += texts.spell(token)
    found = [(at, stop) for stop in order.stops if (at := to.text.find(stop, max(0, before - len(stop) + 1))) >= 0]
    if found:
        at, to.stop = min(found)
        del to.text[at:]
        to.finish = "stop"
    elif len(to.ids) == order.most:
        to.finish = "length"


class Engine:
    """Serves orders in a thread of its own, from `start` to `close`."""

    def __init__(
        self, model: Llama, texts: Texts, *, slots: int, cache_tokens: int, counters: Counters | None = None
    ) -> None:
        """`slots`: continuations at once; `cache_tokens`: of prompts remembered; `counters`: to count on."""
        self.model, self.texts, self.slots = model, texts, slots
        self.cache = PrefixCache(cache_tokens)
        self.counters = counters or Counters()
        self._waiting: list[tuple[int, int, Order, Future[Served]]] = []  # a heap
        self._running: list[_Running] = []
        self._arrivals = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="nano", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Continuations that wait for their turn."""
        return sum(order.n for _, _, order, _ in list(self._waiting))

    @property
    def running(self) -> int:
        """Continuations in the batch."""
        return sum(len(one.rows) for one in list(self._running))

    def submit(self, order: Order) -> "Future[Served]":
        """The answer, later. One that is cancelled takes no more steps."""
        over: Future[Served] = Future()
        with self._changed:
            heapq.heappush(self._waiting, (order.priority, next(self._arrivals), order, over))
            self._changed.notify()
        return over

    def close(self) -> None:
        """End the thread; what is not served by then never is."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._running or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
            try:
                self._admit()
                self._step()
            except Exception as error:
                logger.exception("a step failed")
                self._fail(error)

    def _admit(self) -> None:
        """Read the prompts of orders that have a place. One larger than all places runs alone."""
        while self._waiting:
            with self._changed:
                order = self._waiting[0][2]
                if self._running and self.running + order.n > self.slots:
                    return
                over = heapq.heappop(self._waiting)[3]
            if over.cancelled():
                self.counters.finished["abort"] += order.n
                continue
            try:
                one = _Running(order, over, self.model, self.cache)
            except Exception as error:
                over.set_exception(error)
                raise
            self.counters.queries += len(order.prompt)
            self.counters.hits += one.cached
            self.counters.prompt_tokens += len(order.prompt)
            self._running.append(one)
            self._draw(one)

    def _step(self) -> None:
        """A token more for all that runs."""
        for one in [one for one in self._running if one.over.cancelled()]:
            self.counters.finished["abort"] += len(one.rows)
            self._running.remove(one)
        if not self._running:
            return
        parts, start = [], 0
        for one in self._running:
            parts.append((one, slice(start, start + len(one.rows))))
            start += len(one.rows)
        tokens = np.concatenate([one.last for one in self._running])
        positions = np.concatenate([np.full(len(one.rows), one.state.position) for one in self._running])
        for one in self._running:
            one.state.extend()

        def attend(layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
            seen = np.empty_like(queries)
            for one, rows in parts:
                seen[rows] = one.state.attend(layer, queries[rows], keys[rows], values[rows])
            return seen

        logits = self.model.logits(self.model.forward(tokens, positions, attend))
        for one, rows in parts:
            one.logits = logits[rows]
            self._draw(one)

    def _fail(self, error: Exception) -> None:
        """Whoever was in the batch is told; who waits is served."""
        for one in self._running:
            self.counters.finished["error"] += len(one.rows)
            if one.over.set_running_or_notify_cancel():
                one.over.set_exception(error)
        self._running.clear()

    def _draw(self, one: _Running) -> None:
        self.counters.generation_tokens += one.draw(self.texts)
        if len(one.rows) == 0:
            self._running.remove(one)
            for continuation in one.written:
                self.counters.finished[continuation.finish] += 1
            if one.over.set_running_or_notify_cancel():
                one.over.set_result(Served(one.written, one.cached))
