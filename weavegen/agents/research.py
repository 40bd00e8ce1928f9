"""Research: looks things up for another agent or a person, in a context of its own, and returns a summary.

A tick is one message of the model with the answers to its calls. The tools only read, so the calls of a message
run side by side. A message without calls is the summary. When the context or the messages are used up, the model
is asked for its summary, and tool calls in that message are ignored.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from weavegen.agents.dialogue import (
    TOOL_CALL,
    Call,
    Reply,
    end_trace,
    failed,
    next_tick,
    reply,
    response,
    say,
    task_of,
    tools_text,
)
from weavegen.agents.lookups import TOOLS
from weavegen.agents.program import Part, Tick
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import Ended, LookUp, LookUpResult, Note
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import one_line

MAX_MESSAGES = 60
"""Default of the setting `steps`: messages that the model writes before it is asked for its summary."""
WARN_PERCENT, STOP_PERCENT = 85, 95
"""Used context at which the model is warned, and at which it is asked for its summary."""
MAX_ANSWER_CHARS, HEAD_CHARS, TAIL_CHARS = 8_000, 4_800, 3_200
"""A longer answer keeps HEAD_CHARS of its beginning and TAIL_CHARS of its end."""
MIN_ANSWER_CHARS = 200
"""Length of an answer when the context is nearly full."""
CHARS_PER_TOKEN = 3
"""Lower estimate, for answers that no tokenizer has counted yet."""
MAX_CALLS = 16
"""Calls of one message that are made."""
EQUAL_CALLS, SEQUENCE_LENGTHS = 3, range(2, 6)
"""Equal calls in a row, and lengths of repeated sequences, that make a doom loop."""
REMEMBERED_CALLS = 2 * SEQUENCE_LENGTHS[-1]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for the research agent."""

    task: str
    context: str = ""
    """What the researcher must know about the caller's work."""
    prompt: Literal["general", "literature"] = "general"
    """literature: the summary is a ranked table of what has worked for others."""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise ValueError("task is empty: say what is to be found out")

    @property
    def label(self) -> str:
        """Name of the task in status lines."""
        text = one_line(self.task)
        return text if len(text) <= 50 else f"{text[:50]}…"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace returns."""

    summary: str
    """Empty if there is none; then `error` says why."""
    iterations: int
    """Messages of the model, without the summary that it was asked for."""
    tool_calls: int
    """Calls that were made, failed ones included."""
    total_tokens: int
    """Length of the conversation as far as the server reports it."""
    error: str | None = None


CallDigest = tuple[str, str]
"""Hash of a call, hash of its answer."""


class State(msgspec.Struct, kw_only=True):
    """What a tick passes to the next."""

    label: str
    tokens: int = 0
    """Length of the conversation up to the model's last message."""
    length: int | None = None
    """The model's context length in tokens; None if the server does not report it."""
    warned: bool = False
    tool_calls: int = 0
    recent: tuple[CallDigest, ...] = ()
    """The last calls since the last correction, the newest last."""

    def used(self, percent: int) -> bool:
        """Whether at least `percent` of the context is used."""
        return self.length is not None and 100 * self.tokens >= percent * self.length

    def status(self, t: Tick, detail: str) -> None:
        """Record a status line for people."""
        t.emit(Note(kind="status", detail=f"research: {self.label} | {detail}"))


def research(t: Tick) -> Program:
    """Write down the task, then take one iteration after another until there is a summary."""
    return begin(t) if t.number == 0 else (yield from iteration(t))


def begin(t: Tick) -> Ended:
    """Record what the model reads first."""
    task = task_of(t.bootstrap, Task)
    if task is None:
        return Ended(done=True, failed="bootstrap", reason="this is not a research task: give a JSON object")
    say(t, BlockType.SYSTEM, prompts.text(f"research_{task.prompt}").replace("{tools}", tools_text(TOOLS)))
    context = f"Context, from whoever asks:\n{task.context.strip()}\n\n" if task.context.strip() else ""
    say(t, BlockType.USER, f"{context}Research task:\n{task.task.strip()}")
    state = State(label=task.label)
    state.status(t, "started")
    return next_tick(state)


def iteration(t: Tick) -> Part[Ended]:
    """Have the model write one message, and answer its calls."""
    state = msgspec.convert(t.cursor.start.state, State)
    limit = MAX_MESSAGES if t.settings.steps is None else t.settings.steps
    if t.number > limit:
        request = prompts.message("research", "iterations_spent").format(count=limit)
        return (yield from conclude(t, state, limit, request))
    if state.used(STOP_PERCENT):
        return (yield from conclude(t, state, t.number - 1, prompts.message("research", "context_spent")))
    if (loop := doom_loop(state.recent)) is not None:
        state.status(t, f"goes round in circles: {loop}")
        say(t, BlockType.USER, prompts.message("research", "correction").format(loop=loop))
        state.recent = ()
    if state.used(WARN_PERCENT) and not state.warned:
        state.status(t, f"{state.tokens} of {state.length} tokens used")
        say(t, BlockType.USER, prompts.message("research", "warning").format(percent=WARN_PERCENT))
        state.warned = True
    try:
        message: Reply = yield from reply(t, 0, TOOLS)
    except RolloutError as error:
        return ended(state, t.number - 1, error=error)
    state.tokens, state.length = message.tokens, message.candidate.length
    if message.calls:
        yield from look_up(t, state, message.calls)
        return next_tick(state)
    if not message.answer:
        return (yield from conclude(t, state, t.number, prompts.message("research", "nothing_said")))
    state.status(t, f"done: {state.tool_calls} tool calls, {state.tokens} tokens")
    return ended(state, t.number, message.answer)


def look_up(t: Tick, state: State, calls: Sequence[Call]) -> Part[None]:
    """Make the calls of a message side by side, and record the answers. Changes `state`."""
    errors = [refusal(call, number) for number, call in enumerate(calls)]
    steps = tuple(
        LookUp(tool=call.name, arguments=call.arguments)
        for call, error in zip(calls, errors, strict=True)
        if error is None
    )
    for step in steps:
        state.status(t, f"> {step.tool} {json.dumps(step.arguments)[:80]}")
    results: tuple[LookUpResult, ...] = ()
    if steps:
        try:
            results = yield steps
        except RolloutError as failure:
            results = (LookUpResult(success=False, output=f"the tool could not be run: {failure}"),) * len(steps)
    limit, made = allowance(state, len(calls)), iter(results)
    answers, digests = [], []
    for call, error in zip(calls, errors, strict=True):
        result = next(made) if error is None else LookUpResult(success=False, output=error)
        output = shorten(result.output, limit)
        answers.append(response({"success": True, "output": output} if result.success else failed(output)))
        digests.append((digest(call.name, error or call.arguments), digest(result.success, result.output)))
    say(t, BlockType.TOOL, "\n".join(answers))
    state.tool_calls += len(steps)
    state.recent = (*state.recent, *digests)[-REMEMBERED_CALLS:]


def conclude(t: Tick, state: State, iterations: int, request: str) -> Part[Ended]:
    """Ask for the summary, without tools."""
    state.status(t, "asked for its summary")
    say(t, BlockType.USER, request)
    try:
        message: Reply = yield from reply(t, 0)
    except RolloutError as error:
        return ended(state, iterations, error=error)
    state.tokens = message.tokens
    return ended(state, iterations, TOOL_CALL.sub("", message.answer).strip())


def ended(state: State, iterations: int, summary: str = "", error: RolloutError | None = None) -> Ended:
    """End the trace. `error`: the model could not write another message, such as when the context is full."""
    reason = f"Generation error: {error}" if error is not None else "the model wrote no summary"
    result = Result(
        summary=summary,
        iterations=iterations,
        tool_calls=state.tool_calls,
        total_tokens=state.tokens,
        error=None if summary else reason,
    )
    return end_trace(result, error)


def refusal(call: Call, number: int) -> str | None:
    """Why call `number` of a message is not made; None if it is made."""
    if call.error is not None:
        return call.error
    if number >= MAX_CALLS:
        return f"not called: a message may have {MAX_CALLS} calls, write it again in the next one"
    try:
        check_json(call.arguments, call.name)  # the journal stores them
    except UsageError as error:
        return str(error)
    return None


def allowance(state: State, answers: int) -> int:
    """Characters for each of `answers` answers, such that the context keeps room for a summary."""
    if state.length is None:
        return MAX_ANSWER_CHARS
    room = STOP_PERCENT * state.length // 100 - state.tokens
    return max(MIN_ANSWER_CHARS, min(MAX_ANSWER_CHARS, CHARS_PER_TOKEN * room // answers))


def shorten(text: str, limit: int = MAX_ANSWER_CHARS) -> str:
    """The first and the last part of a text, `limit` characters in all, with a mark that counts the rest."""
    if len(text) <= limit:
        return text
    head = limit * HEAD_CHARS // MAX_ANSWER_CHARS
    return f"{text[:head]}\n... ({len(text) - limit} characters left out) ...\n{text[head - limit :]}"


def digest(*values: object) -> str:
    """A hash that is equal for equal JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def doom_loop(recent: Sequence[CallDigest]) -> str | None:
    """What the last calls repeat, in words; None if they repeat nothing.

    A doom loop is either three equal calls with equal answers, or two equal sequences of 2 to 5 calls one after
    the other, whatever the answers. In a sequence, not all calls are equal.
    """
    if len(recent) >= EQUAL_CALLS and len(set(recent[-EQUAL_CALLS:])) == 1:
        return f"the last {EQUAL_CALLS} calls were the same, and so were their answers"
    calls = [call for call, _ in recent]
    for length in SEQUENCE_LENGTHS:
        last, before = calls[-length:], calls[-2 * length : -length]
        if last == before and len(set(last)) > 1:
            return f"the last {length} calls are the {length} before them once more"
    return None
