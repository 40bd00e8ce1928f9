"""Replay: run a program over its journal to find out what to do next. Pure: no database, no queue, no clock.

Replay makes a tick durable. The program runs again from the tick's start over the results in the journal. It asks for
the same steps in the same order, receives the recorded results, and arrives where it was. The steps that it asks for
beyond the journal's end are the next ones to run. Temporal and DBOS make programs durable in the same way.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weavegen.errors import JournalMismatch, RolloutError
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import STEP_KINDS, Append, Effect, Ended, Step, SubagentDone
from weavegen.trace.blocks import SUCCESSORS, Block, BlockType, Draft, Label
from weavegen.trace.render import normalise_body, one_line

Program = Generator[Step | tuple[Step, ...], Any, Ended]
"""An agent's tick. kernel/steps.py says what it yields and receives."""


@dataclass(frozen=True)
class Entry:
    """One row of the journal: a step and, once it has run, its result."""

    step: Step
    done: bool = False
    result: Any = None
    failure: RolloutError | None = None
    """Set where the step has failed; raised inside the program."""
    at: float = 0.0
    """When the result was stored, in seconds since the epoch: the program's clock."""


class InheritedSettings(msgspec.Struct, frozen=True):
    """Seed, clock and settings under which another trace wrote the first blocks of a fork's tick."""

    until: int
    """Index of the first block after them."""
    seed: int
    """Seed of the trace that wrote them."""
    lag: float
    """Seconds by which that trace's clock was behind."""
    revision: int
    """Revision of its settings, which the fork's job has too."""


@dataclass(frozen=True)
class Start:
    """The start of a tick; the same at every replay.

    In a fork, another trace wrote the first blocks. The replay asks for them as that trace did: the index of the
    block that is being written selects the first of `inherited` that ends after it, else the trace's own values.
    """

    trace_seed: int
    """The trace's own; see `seed_and_lag`."""
    tick: int
    clock: float
    """Seconds since the epoch."""
    deadline: float
    """When the subagent's time budget is spent; seconds since the epoch."""
    blocks: int
    """Blocks of the trace before this tick."""
    last_type: BlockType | None
    repeats: int = 0
    """Consecutive ticks before this one with equal actions and equal outcomes."""
    subagent: str = "main"
    state: Any = None
    """`Ended.state` of the tick before, a JSON value."""
    lag: float = 0.0
    """Seconds by which the trace's clock is behind."""
    inherited: tuple[InheritedSettings, ...] = ()

    def seed_and_lag(self, index: int) -> tuple[int, float]:
        """The seed from which a block's randomness derives, and the seconds by which the clock was behind."""
        other = next((settings for settings in self.inherited if index < settings.until), None)
        return (self.trace_seed, self.lag) if other is None else (other.seed, other.lag)


@dataclass
class Advance:
    """The result of a replay. `effects` are new: no earlier advance has applied them."""

    effects: list[tuple[Effect, Block | None]] = field(default_factory=list)
    steps: list[tuple[int, Step]] = field(default_factory=list)
    """(ordinal within the tick, step) to insert and send."""
    ended: Ended | None = None
    """Set when the program has returned. None: it waits for steps."""


@dataclass(frozen=True)
class Requested:
    """A place in a tick where the program requested steps."""

    ordinal: int
    """Ordinal of the first step."""
    index: int
    """Index of the next block."""
    now: float
    """The program's clock; seconds since the epoch."""


class Cursor:
    """The position of a program in its tick. Replay moves it; the program reads it."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.now = start.clock
        """The program's time: when its last result was stored, in seconds since the epoch."""
        self.ordinal = 0
        """Ordinal of the next step within the tick."""
        self.index = start.blocks
        """Index of the next block."""
        self.last_type = start.last_type
        """Type of the block before it."""
        self.recorded: list[tuple[Append, Block]] = []
        """This tick's blocks so far, without those of subagents that it called."""
        self.effects: list[tuple[Effect, Block | None]] = []
        """Effects since the last step that is in the journal."""
        self.requested: list[Requested] = []

    def append(self, draft: Append) -> Block:
        """Record a block. Raises ValueError where its type may not follow the last one."""
        block = record(draft, self)
        self.recorded.append((draft, block))
        self.effects.append((draft, block))
        self.index, self.last_type = block.index + 1, block.type
        return block

    def emit(self, effect: Effect) -> None:
        """Record an effect that is not a block."""
        self.effects.append((effect, None))


def replay(program: Program, cursor: Cursor, entries: Sequence[Entry]) -> Advance:
    """Run `program` over `entries` and return what comes next.

    Raises JournalMismatch where the program asks for another step than the journal holds, TypeError where it yields
    or returns something else or what JSON can't hold, and every exception of the program itself but RolloutError.
    """
    advance, tick, used = Advance(), cursor.start.tick, 0
    try:
        request = next(program)
        while True:
            cursor.requested.append(Requested(used, cursor.index, cursor.now))
            steps = request if isinstance(request, tuple) else (request,)
            if not steps or not all(isinstance(step, Step) for step in steps):
                raise TypeError(f"the program yielded {request!r:.200}, which is no step: is `yield from` missing?")
            recorded = entries[used : used + len(steps)]
            for offset, (asked, entry) in enumerate(zip(steps, recorded, strict=False)):
                if asked != entry.step and encode(asked) != encode(entry.step):  # JSON has no tuples
                    raise JournalMismatch(f"step {used + offset} of tick {tick}: the journal holds another one")
            if not recorded:
                advance.steps = list(enumerate(steps, used))
                break
            # Effects are applied in the transaction that inserts the step after them: that has happened.
            cursor.effects.clear()
            if len(recorded) < len(steps):
                raise JournalMismatch(f"tick {tick}: the journal ends inside a group of steps")
            used = cursor.ordinal = used + len(steps)
            if not all(entry.done for entry in recorded):
                break
            writing = cursor.index
            if isinstance(recorded[0].result, SubagentDone):  # a subagent's blocks came in between
                cursor.index, cursor.last_type = recorded[0].result.index, recorded[0].result.last_type
                writing = cursor.index - 1
            _, lag = cursor.start.seed_and_lag(writing)
            cursor.now = max(cursor.now, *(round(entry.at - lag, 6) if lag else entry.at for entry in recorded))
            if (failure := next((entry.failure for entry in recorded if entry.failure), None)) is not None:
                request = program.throw(failure)
            elif isinstance(request, tuple):
                request = program.send(tuple(entry.result for entry in recorded))
            else:
                request = program.send(recorded[0].result)
    except StopIteration as stop:
        if used < len(entries):
            raise JournalMismatch(f"tick {tick}: the program ended before its journal") from None
        if not isinstance(stop.value, Ended):
            raise TypeError(f"the program returned {stop.value!r:.200} instead of Ended") from None
        advance.ended = stop.value
    except RolloutError as error:
        advance.ended = Ended(done=True, failed=error.kind, reason=str(error))
    finally:
        advance.effects = list(cursor.effects)  # without those of the program's own `finally`: it has not come there
        program.close()
    encode((advance.steps, advance.ended))
    return advance


def record(draft: Append, cursor: Cursor) -> Block:
    """The block that a draft becomes. Raises ValueError where its type may not follow the last one.

    Its label is drawn here, once, from the trace's seed and the block's index.
    """
    start, index, last = cursor.start, cursor.index, cursor.last_type
    if last is not None and draft.type not in SUCCESSORS[last]:
        raise ValueError(f"a block of type {draft.type} may not follow one of type {last}")
    timestamp = draft.began if draft.began is not None else cursor.now
    values = {name: getattr(draft, name) for name in Draft.__struct_fields__}
    lines = {name: one_line(values[name]) for name in ("bm25_query", "title", "working_directory") if values[name]}
    return Block(
        **values | lines | {"body": normalise_body(draft.type, draft.body)},
        subagent=one_line(start.subagent),
        index=index,
        timestamp=timestamp,
        time_remaining=round(start.deadline - timestamp, 6),
        label=draw_label(draft.question, draft.yes, derive_seed(start.seed_and_lag(index)[0], "label", index)),
    )


def draw_label(question: str | None, yes: float | None, seed: int) -> Label | None:
    """An answer drawn with the model's own probability of yes; the label carries that of the drawn answer."""
    if question is None or yes is None:
        return None
    answer = seed / 2**48 < yes
    return Label(one_line(question), answer, round(yes if answer else 1 - yes, 5))


def encode(value: Any) -> bytes:
    """A step or a result as the journal's JSON."""
    return msgspec.json.encode(value)


def decode_step(kind: str, data: Any) -> Step:
    """A step back from JSON values. Raises JournalMismatch where this version no longer knows it."""
    try:
        return msgspec.convert(data, STEP_KINDS[kind])
    except (KeyError, msgspec.ValidationError) as error:
        raise JournalMismatch(f"the journal holds a step that this version can't read: {error}") from None


def decode_result(kind: str, data: Any) -> Any:
    """A step's result back from JSON values. Raises JournalMismatch likewise."""
    try:
        return msgspec.convert(data, STEP_KINDS[kind].result)
    except (KeyError, msgspec.ValidationError) as error:
        raise JournalMismatch(f"the journal holds a result that this version can't read: {error}") from None
