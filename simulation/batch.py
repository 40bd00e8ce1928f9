"""The simulated engine's scheduler: continuous batching in virtual time. No clock, no I/O.

Steps are as in vLLM. In each step, every decoding sequence gets one token, and the rest of the step's token budget
goes to prompts that are still being computed, in order of admission. Sequences are admitted, and preempted if the
cache is full, only between steps. Steps that only decode differ only in the length of contexts, so any number of them
is computed at once, up to the first sequence that ends. So the cost grows with events and not with tokens.
"""

import heapq
import itertools
import math
from dataclasses import dataclass

from simulation.cache import WIDTH, Cache, Prompt
from simulation.parameters import Load
from weavegen_nano.counters import Counters


@dataclass(eq=False)
class Sequence:
    """One continuation of a prompt in the engine."""

    prompt: Prompt
    output: bytes
    """All tokens that it will generate, packed by `tokenizer.packed`."""
    reason: str = "stop"
    """The finish reason: `stop` or `length`."""
    priority: int = 0
    cached: int = 0
    """Prompt tokens that were in the prefix cache at the first admission."""
    arrival: int = 0
    generated: int = 0
    """Generated tokens at the last preemption: they are recomputed with the prompt."""
    left: int = 0
    """Prompt tokens still to be computed."""
    ends: int = -1
    """Number of the decode step that gives the last token; -1 while the sequence does not decode."""
    held: Prompt | None = None
    """The prompt that the sequence holds in the cache while it runs."""

    @property
    def tokens(self) -> int:
        """Tokens to generate. An empty text takes one: the end-of-sequence token."""
        return max(1, len(self.output) // WIDTH)


class Batch:
    """Running and waiting sequences. Times are seconds on the caller's clock, which never goes back."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.counters = Counters()
        self.slot_seconds = 0.0
        """Integral over time of the number of running sequences."""
        self.cache = Cache(load.cache_tokens, shares=load.prefix_cache)
        self.running: dict[Sequence, None] = {}  # in the order of admission
        self.waiting: set[Sequence] = set()
        self._queue: list[tuple[int, int, Sequence]] = []  # a heap; sequences that no longer wait are skipped
        self._prefilling: dict[Sequence, None] = {}
        self._ending: list[tuple[int, int, Sequence]] = []  # a heap; sequences that no longer decode are skipped
        self._entries = itertools.count()  # in that heap: the order of sequences that end together
        self._time = 0.0  # time of the last boundary between steps
        self._until: float | None = None  # end of the step in flight
        self._pieces: list[tuple[Sequence, int]] = []  # prompt tokens that the step in flight computes
        self._counted = 0.0  # slot seconds are counted up to here
        self._arrivals = 0
        self._decoded = 0  # decode steps so far
        self._context = 0  # tokens in the contexts of decoding sequences
        self._own = 0  # tokens that running sequences hold beside the cache's segments
        self._full = False  # whether the head of the queue must wait for room in the cache

    @property
    def usage(self) -> float:
        """Share of the KV cache that running sequences hold, 0 to 1."""
        return min(1.0, self._used() / self.load.cache_tokens)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Call `advance(now)` before, and again after all sequences of a request are added."""
        self._arrivals += 1
        sequence.arrival = self._arrivals
        self._wait(sequence)

    def at_once(self, sequence: Sequence) -> None:
        """Serve a sequence without delay: only the counters and the prefix cache change."""
        sequence.cached = self.cache.hits(sequence.prompt)
        self._count_prompt(sequence)
        self.counters.generation_tokens += sequence.tokens
        self.counters.finished[sequence.reason] += 1
        self.cache.keep(sequence.prompt.goes_on(sequence.output[:-WIDTH]))
        self.cache.shrink(0)

    def advance(self, now: float) -> list[Sequence]:
        """Run the engine until `now`. Returns the sequences that have ended, in order."""
        ended: list[Sequence] = []
        while True:
            if self._until is None:
                self._schedule()
                if not self.running:
                    self.count_slots(now)
                    self._time = max(self._time, now)
                    return ended
                if not self._pieces and (steps := self._steps_until(now)):
                    self._decode(steps, self._time + self._seconds(steps), ended)
                    continue
                self._until = self._time + self._seconds(1)
            if self._until > now:
                return ended
            self._end_step(ended)

    def next_event(self) -> float | None:
        """Time of the next event if nothing arrives: a sequence ends, or the batch changes. None: never."""
        if self._until is None:
            return None
        admits = self.waiting and not self._full and len(self.running) < self.load.slots
        if self._pieces or admits or not self._decoding():
            return self._until
        return max(self._until, self._time + self._seconds(max(1, self._most_steps())))

    def abort(self, sequences: list[Sequence], now: float) -> None:
        """Drop the sequences that have not ended, because their client is gone. Call `advance(now)` before."""
        self.count_slots(now)
        for sequence in reversed(sequences):  # the first computes the prompt that its siblings share
            if sequence in self.waiting:
                self.waiting.remove(sequence)
                self._full = False
            elif sequence in self.running:
                self._stop(sequence)
            else:
                continue
            self.counters.finished["abort"] += 1
        self._pieces = [piece for piece in self._pieces if piece[0] in self.running]
        if not self.running:
            self._until, self._time = None, max(self._time, now)

    # ---------------------------------------------------------------------------------------- schedule

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        return (sequence.priority if self.load.scheduling_policy == "priority" else 0, sequence.arrival)

    def _wait(self, sequence: Sequence) -> None:
        self.waiting.add(sequence)
        heapq.heappush(self._queue, (*self._rank(sequence), sequence))
        if self._queue[0][2] is sequence:
            self._full = False  # another sequence is first now, which may be shorter

    def _schedule(self) -> None:
        """Between two steps: make room, admit sequences, and distribute the next step's token budget."""
        if not self._make_room():
            self._admit()
        self.cache.shrink(self._own)
        budget = self.load.step_tokens - self._decoding()
        self._pieces = []
        for sequence in self._prefilling:
            if budget < 1:
                break
            self._pieces.append((sequence, min(budget, sequence.left)))
            budget -= self._pieces[-1][1]

    def _make_room(self) -> bool:
        """Preempt sequences until the next step's tokens fit. Returns whether any was preempted."""
        preempted = False
        while len(self.running) > 1 and self._used() + self._decoding() > self.load.cache_tokens:
            last = max(self.running, key=self._rank)
            generated = last.tokens - (last.ends - self._decoded) if last.ends >= 0 else last.generated
            self._stop(last)
            last.generated = generated
            self.counters.preemptions += 1
            self._wait(last)
            self._full = preempted = True
        return preempted

    def _admit(self) -> None:
        budget = self.load.step_tokens - self._decoding() - sum(sequence.left for sequence in self._prefilling)
        while self._queue and budget > 0 and not self._full and len(self.running) < self.load.slots:
            sequence = self._queue[0][2]
            if sequence not in self.waiting:
                heapq.heappop(self._queue)
                continue
            prompt = sequence.prompt
            if sequence.generated:  # preempted: its own tokens are recomputed like those of a prompt
                prompt = prompt.goes_on(sequence.output[: WIDTH * sequence.generated])
            # One more token for each decoding sequence; otherwise the new sequence would be the first to be
            # preempted.
            if self._used() + self.cache.missing(prompt) + self._decoding() > self.load.cache_tokens and self.running:
                self._full = True
                return
            heapq.heappop(self._queue)
            self.waiting.remove(sequence)
            hits = self.cache.hits(prompt)
            if not sequence.left and not sequence.generated:
                sequence.cached = hits
                self._count_prompt(sequence)
            sequence.held, sequence.left, sequence.ends = prompt, prompt.tokens - hits, -1
            self.cache.hold(prompt)
            self._own += self.cache.own(prompt)
            self.running[sequence] = self._prefilling[sequence] = None
            budget -= sequence.left

    # ------------------------------------------------------------------------------------------- steps

    def _seconds(self, steps: int) -> float:
        """Duration of the next `steps` steps if no sequence ends; the first one computes the prompt tokens."""
        base, slope = self._pace()
        pieces = sum(tokens for _, tokens in self._pieces)
        prefill = pieces / self.load.prefill if self.load.prefill else 0.0
        return base * steps + slope * steps * steps + prefill

    def _pace(self) -> tuple[float, float]:
        """(p, q): n steps take p n + q n² seconds, because each step adds a token to every context."""
        load, decoding = self.load, self._decoding()
        slope = load.per_context / 1e6 * decoding / 2
        base = (load.inter_token + load.per_sequence * (decoding + len(self._pieces))) / 1000
        return base + load.per_context / 1e6 * self._context - slope, slope

    def _steps_until(self, now: float) -> int:
        """Number of whole decode steps that end by `now`, before or when the first sequence ends."""
        most = self._most_steps()
        if self._time + self._seconds(most) <= now:
            return most
        base, slope = self._pace()
        seconds = now - self._time
        if slope > 0:
            steps = int((math.sqrt(base * base + 4 * slope * seconds) - base) / (2 * slope))
        else:
            steps = int(seconds / base)
        return max(0, min(steps, most - 1))

    def _most_steps(self) -> int:
        """Decode steps until a sequence ends, or the cache is full."""
        while self._ending[0][2].ends != self._ending[0][0]:
            heapq.heappop(self._ending)
        room = (self.load.cache_tokens - self._used()) // self._decoding()
        return min(self._ending[0][0] - self._decoded, max(1, room))

    def _end_step(self, ended: list[Sequence]) -> None:
        """Finish the current step."""
        assert self._until is not None
        until, pieces = self._until, self._pieces
        self._until, self._pieces = None, []
        self._decode(1, until, ended)
        for sequence, tokens in pieces:
            sequence.left -= tokens
            if not sequence.left:
                self._first_token(sequence, ended)

    def _decode(self, steps: int, until: float, ended: list[Sequence]) -> None:
        """Add `steps` tokens to each decoding sequence and set the time to `until`."""
        self.count_slots(until)
        self._time = until
        tokens = steps * self._decoding()
        if not tokens:
            return
        self._decoded += steps
        self._context += tokens
        self._own += tokens
        self.cache.shrink(self._own)
        self.counters.generation_tokens += tokens
        while self._ending and self._ending[0][0] <= self._decoded:
            ends, _, sequence = heapq.heappop(self._ending)
            if sequence.ends == ends:
                self._finish(sequence, ended)

    def _first_token(self, sequence: Sequence, ended: list[Sequence]) -> None:
        """Finish a sequence's prefill: the same step gives the first token."""
        del self._prefilling[sequence]
        assert sequence.held is not None
        self.counters.generation_tokens += 1
        sequence.generated += 1
        sequence.ends = self._decoded + sequence.tokens - sequence.generated
        self._context += sequence.held.tokens + 1
        self._own += 1
        if sequence.generated >= sequence.tokens:
            self._finish(sequence, ended)
        else:
            heapq.heappush(self._ending, (sequence.ends, next(self._entries), sequence))

    def _finish(self, sequence: Sequence, ended: list[Sequence]) -> None:
        self._stop(sequence)
        self.counters.finished[sequence.reason] += 1
        ended.append(sequence)

    def _stop(self, sequence: Sequence) -> None:
        """Remove a running sequence from the batch. Its computed tokens stay in the prefix cache."""
        assert sequence.held is not None
        del self.running[sequence]
        self._full = False
        self.cache.release(sequence.held, sequence.held.tokens - sequence.left)
        self._own -= self.cache.own(sequence.held)
        if sequence.ends < 0:
            del self._prefilling[sequence]
        else:
            generated = sequence.tokens - (sequence.ends - self._decoded)
            tokens = sequence.prompt.tokens + generated
            self._context -= tokens
            self._own -= tokens - sequence.held.tokens
            # The last token has not been computed: it would be the input of the next step.
            self.cache.keep(sequence.prompt.goes_on(sequence.output[: WIDTH * (generated - 1)]))
        self.cache.shrink(self._own)
        sequence.held, sequence.ends = None, -1

    # ------------------------------------------------------------------------------------------ counts

    def _decoding(self) -> int:
        return len(self.running) - len(self._prefilling)

    def _used(self) -> int:
        return self.cache.held + self._own

    def _count_prompt(self, sequence: Sequence) -> None:
        self.counters.queries += sequence.prompt.tokens if self.load.prefix_cache else 0
        self.counters.hits += sequence.cached
        self.counters.prompt_tokens += sequence.prompt.tokens

    def count_slots(self, now: float) -> None:
        """Update `slot_seconds` to `now`. Call `advance(now)` before."""
        if now > self._counted:
            self.slot_seconds += len(self.running) * (now - self._counted)
            self._counted = now
