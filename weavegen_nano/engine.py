"""Continuous batching: each step samples one token for every running continuation of all requests.

Sampling follows vLLM's order: repetition penalty, temperature, top-k, top-p, draw.
"""

import heapq
import itertools
import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from weavegen_nano.attention import BLOCK, Continuations, PrefixCache, Prompt
from weavegen_nano.counters import Counters
from weavegen_nano.llama import Floats, Ids, Llama
from weavegen_nano.texts import Texts

logger = logging.getLogger(__name__)

_GREEDY = 1e-5
"""Below this temperature the most likely token is taken, as in vLLM."""


@dataclass(frozen=True)
class Sampling:
    temperature: float = 1.0
    top_k: int = 0
    """Sample from this many of the most likely tokens. 0: from all tokens."""
    top_p: float = 1.0
    """Sample from the most likely tokens that together have this probability."""
    penalty: float = 1.0
    """Repetition penalty (arXiv:1909.05858): positive logits of earlier tokens are divided, others multiplied."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A request for continuations of a prompt."""

    prompt: Ids
    n: int
    max_tokens: int
    """Maximum tokens of a continuation."""
    sampling: Sampling
    seed: int
    """Any number; modulo 2**64."""
    stops: tuple[bytes, ...] = ()
    end_token: int | None = None
    """The token that ends a text."""
    top_logprobs: int = 0
    """Number of the most likely tokens whose logprobs are returned, besides the sampled token's logprob."""
    logprob_ids: tuple[int, ...] = ()
    """More tokens whose logprobs are returned."""
    priority: int = 0
    """Orders with lower values run first."""


@dataclass
class Continuation:
    ids: list[int] = field(default_factory=list)
    tops: list[dict[int, float]] = field(default_factory=list)
    """For each of `ids`: logprobs by token id, including its own logprob."""
    text: bytearray = field(default_factory=bytearray)
    """The text without the stop string."""
    finish: str = ""
    """`stop` or `length`."""
    stop: bytes | None = None
    """The stop string that ended it."""


@dataclass
class Result:
    continuations: list[Continuation]
    cached: int
    """Tokens of the prompt that were in the prefix cache."""


class Unloaded(Exception):
    """The engine was closed before an order was done."""


class _Running:
    """An order whose continuations are being sampled."""

    def __init__(self, order: Order, future: "Future[Result]", model: Llama, cache: PrefixCache) -> None:
        self.order, self.future, self._cache = order, future, cache
        prompt = Prompt(order.prompt, model.shape)
        self.cached = cache.find(prompt)
        self.logits = np.repeat(prompt.read(model), order.n, axis=0)
        cache.keep(prompt.ids, prompt.cached)
        self.continuations = [Continuation() for _ in range(order.n)]
        self.rows = np.arange(order.n)
        """Indexes of the continuations that are not finished."""
        self.state = Continuations(prompt, model.shape, order.n)
        self._generators = [np.random.default_rng([order.seed % 2**64, number]) for number in range(order.n)]
        self._seen = np.zeros((order.n, model.shape.vocabulary), bool)
        self._seen[:, order.prompt] = True

    def draw(self, texts: Texts) -> int:
        """Sample the next token of each row from `logits`, and drop finished rows. Returns the token count."""
        order, rows = self.order, self.rows
        chance = np.array([self._generators[row].random() for row in rows])
        tokens = draw(self.logits, self._seen[rows], order.sampling, chance)
        self._seen[rows, tokens] = True
        for row, token, likely in zip(rows, tokens, logprobs(self.logits), strict=True):
            _append(self.continuations[row], order, int(token), likely, texts)
        finished = np.array([bool(self.continuations[row].finish) for row in rows])
        if finished.any():
            for at in np.flatnonzero(finished):
                self._keep_text(int(at))
            self.rows = rows[~finished]
            self.state.keep(np.flatnonzero(~finished))
        return len(tokens)

    def _keep_text(self, at: int) -> None:
        """Add the whole blocks of a row's text to the prefix cache, because later prompts contain it."""
        prompt, length = self.order.prompt, self.state.length
        start = len(prompt) // BLOCK * BLOCK
        if len(prompt) + length >= start + BLOCK:
            ids = np.array(self.continuations[self.rows[at]].ids[:length], np.int64)
            self._cache.keep(np.concatenate([prompt, ids]), self.state.tokens(at, start), start)


def _append(to: Continuation, order: Order, token: int, logprobs: Floats, texts: Texts) -> None:
    """Append a token to a continuation, and finish it if it is complete."""
    likeliest = np.argsort(-logprobs, kind="stable")[: order.top_logprobs] if order.top_logprobs else ()
    to.ids.append(token)
    to.tops.append({int(number): float(logprobs[number]) for number in (token, *likeliest, *order.logprob_ids)})
    if token == order.end_token:
        to.finish = "stop"
        return
    before = len(to.text)
    to.text += texts.spell(token)
    ends = [(at, stop) for stop in order.stops if (at := to.text.find(stop, max(0, before - len(stop) + 1))) >= 0]
    if ends:
        at, to.stop = min(ends)
        del to.text[at:]
        to.finish = "stop"
    elif len(to.ids) == order.max_tokens:
        to.finish = "length"


class Engine:
    """Serves orders in a thread of its own until `close`."""

    def __init__(
        self, model: Llama, texts: Texts, *, slots: int, cache_tokens: int, counters: Counters | None = None
    ) -> None:
        """`slots`: continuations at once. `cache_tokens`: size of the prefix cache. `counters`: to share them."""
        self.model, self.texts, self.slots = model, texts, slots
        self.cache = PrefixCache(cache_tokens)
        self.counters = counters or Counters()
        self._waiting: list[tuple[int, int, Order, Future[Result]]] = []  # a heap
        self._running: list[_Running] = []
        self._arrivals = itertools.count()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="nano", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Continuations that wait for a place in the batch."""
        return sum(order.n for _, _, order, _ in list(self._waiting))

    @property
    def running(self) -> int:
        """Continuations in the batch."""
        return sum(len(job.rows) for job in list(self._running))

    @property
    def usage(self) -> float:
        """Share of all slots' keys and values that running orders hold, 0 to 1.

        As in vLLM, the prefix cache does not count, because its blocks make room for others.
        """
        tokens = sum(len(job.order.prompt) + len(job.rows) * job.state.length for job in list(self._running))
        return tokens / (self.slots * self.model.shape.length)

    def submit(self, order: Order) -> "Future[Result]":
        """Queue an order. If the returned future is cancelled, sampling stops. It may raise Unloaded."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closed:
                future.set_exception(Unloaded())
                return future
            heapq.heappush(self._waiting, (order.priority, next(self._arrivals), order, future))
            self._changed.notify()
        return future

    def close(self) -> None:
        """End the thread, after the step that it computes. Unfinished orders raise Unloaded."""
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
                    break
            try:
                self._admit()
                self._step()
            except Exception as error:
                logger.exception("a step failed")
                self._fail_running(error)  # waiting orders are not affected
        self._fail_running(Unloaded())
        for _, _, order, future in self._waiting:
            self._fail(future, order.n, Unloaded())

    def _fail_running(self, error: Exception) -> None:
        for job in self._running:
            self._fail(job.future, len(job.rows), error)
        self._running.clear()

    def _fail(self, future: "Future[Result]", count: int, error: Exception) -> None:
        """End an order of which `count` continuations are not finished, unless it was cancelled."""
        self.counters.finished["error"] += count
        if future.set_running_or_notify_cancel():
            future.set_exception(error)

    def _admit(self) -> None:
        """Compute the prompts of orders that fit into the batch. An order larger than the batch runs alone."""
        while self._waiting:
            with self._changed:
                order = self._waiting[0][2]
                if self._running and self.running + order.n > self.slots:
                    return
                future = heapq.heappop(self._waiting)[3]
            if future.cancelled():
                self.counters.finished["abort"] += order.n
                continue
            try:
                job = _Running(order, future, self.model, self.cache)
            except Exception as error:  # it may be too large: others are not affected
                logger.exception("a prompt failed")
                self._fail(future, order.n, error)
                continue
            self.counters.queries += len(order.prompt)
            self.counters.hits += job.cached
            self.counters.prompt_tokens += len(order.prompt)
            self._running.append(job)
            self._draw(job)

    def _step(self) -> None:
        """Sample one token for every running continuation."""
        for job in [job for job in self._running if job.future.cancelled()]:
            self.counters.finished["abort"] += len(job.rows)
            self._running.remove(job)
        if not self._running:
            return
        parts, start = [], 0
        for job in self._running:
            parts.append((job, slice(start, start + len(job.rows))))
            start += len(job.rows)
        tokens = np.array([job.continuations[row].ids[-1] for job in self._running for row in job.rows], np.int64)
        positions = np.concatenate([np.full(len(job.rows), job.state.position) for job in self._running])
        for job in self._running:
            job.state.extend()

        def attend(layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
            attended = np.empty_like(queries)
            for job, rows in parts:
                attended[rows] = job.state.attend(layer, queries[rows], keys[rows], values[rows])
            return attended

        logits = self.model.logits(self.model.forward(tokens, positions, attend))
        for job, rows in parts:
            job.logits = logits[rows]
            self._draw(job)

    def _draw(self, job: _Running) -> None:
        self.counters.generation_tokens += job.draw(self.texts)
        if len(job.rows) == 0:
            self._running.remove(job)
            for continuation in job.continuations:
                self.counters.finished[continuation.finish] += 1
            if job.future.set_running_or_notify_cancel():
                job.future.set_result(Result(job.continuations, job.cached))


def logprobs(logits: Floats) -> Floats:
    """Return the logprobs of every token, by row, before penalty and temperature."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


def draw(
    logits: Floats, seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]], parameters: Sampling, chance: Floats
) -> Ids:
    """Sample a token per row. `seen`: tokens that the text already has; `chance`: a number in [0, 1) per row."""
    if parameters.penalty != 1.0:
        logits = np.where(seen, np.where(logits > 0, logits / parameters.penalty, logits * parameters.penalty), logits)
    if parameters.temperature < _GREEDY:
        return np.asarray(np.argmax(logits, axis=-1), np.int64)
    logits = logits / np.float32(parameters.temperature)
    size = logits.shape[-1]
    if 0 < parameters.top_k < size:
        least = np.partition(logits, size - parameters.top_k, axis=-1)[:, size - parameters.top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
    if parameters.top_p < 1.0:
        order = np.argsort(-odds, axis=-1, kind="stable")
        mass = np.cumsum(np.take_along_axis(odds, order, -1), axis=-1)
        # Keep a token if the more likely tokens have less than this mass. So the most likely token is always kept.
        beyond = np.concatenate([np.zeros((len(mass), 1)), mass[:, :-1]], axis=-1) >= parameters.top_p * mass[:, -1:]
        np.put_along_axis(odds, order, np.where(beyond, 0.0, np.take_along_axis(odds, order, -1)), -1)
    mass = np.cumsum(odds, axis=-1)
    return np.asarray((mass <= chance[:, None] * mass[:, -1:]).sum(axis=-1), np.int64)
