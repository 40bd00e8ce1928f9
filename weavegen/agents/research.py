"""Research: looks things up for another agent or a person, in a context of its own, and returns a summary.

A tick is one message of the model with the answers to its calls. The tools only read, so the calls of a message
run side by side. A message without calls is the summary. When the context is full or the message limit is
reached, the model is asked for its summary, and tool calls in that message are ignored.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from weavegen.agents import dialogue
from weavegen.agents.program import Part, Tick
from weavegen.box.calls import shorten
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Ended, LookUp, LookUpResult, Note
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import one_line

DOCUMENT_TOOLS = ("list_documents", "search_documents", "grep_documents", "read_document")
TOOLS = [dialogue.declared_tool(name) for name in (*DOCUMENT_TOOLS, "search_corpus", "read_blocks", "sql")]
"""The look-up tools, in the order of the prompt. A worker runs them (step `LookUp`)."""
MAX_MESSAGES = 60
"""Default of the setting `steps`: messages that the model writes before it is asked for its summary."""
WARN_PERCENT, STOP_PERCENT = 85, 95
"""Percent of the context in use at which the model is warned, and at which it is asked for its summary."""
MAX_ANSWER_CHARS, HEAD_PERCENT = 8_000, 60
"""A longer answer is cut in the middle. HEAD_PERCENT of what is kept comes before the cut."""
MIN_ANSWER_CHARS = 200
"""Characters of an answer when the context is nearly full."""
CHARS_PER_TOKEN = 3
"""A low estimate, for answers whose tokens are not counted yet."""
MAX_CALLS = 16
"""Calls of one message that are made. Further calls are answered with an error."""
EQUAL_CALLS, SEQUENCE_LENGTHS = 3, range(2, 6)
"""A doom loop: this many equal calls in a row, or a repeated sequence of one of these lengths."""
REMEMBERED_CALLS = 2 * SEQUENCE_LENGTHS[-1]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for the research agent."""

    task: str
    context: str = ""
    """Facts about the caller's work that the researcher needs."""
    prompt: Literal["general", "literature"] = "general"
    """literature: the summary is a ranked table of methods that others used with success."""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise ValueError("task is empty: describe what to find out")


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The value that a trace returns."""

    summary: str
    """Empty: there is no summary, and `error` says why."""
    iterations: int
    """Messages of the model, without a summary that it was asked for."""
    tool_calls: int
    """Calls that were made, including failed calls."""
    total_tokens: int
    """Tokens of the conversation as far as the server reports them."""
    error: str | None = None


CallDigest = tuple[str, str]
"""(hash of a call, hash of its answer)."""


class State(msgspec.Struct, kw_only=True):
    """The state that a tick passes to the next tick."""

    label: str
    """Name of the task in status lines."""
    tokens: int = 0
    """Tokens of the conversation up to the model's last message."""
    length: int | None = None
    """The model's context length in tokens. None: the server does not report it."""
    warned: bool = False
    tool_calls: int = 0
    recent: tuple[CallDigest, ...] = ()
    """The last calls since the last correction, the newest call last."""

    def used(self, percent: int) -> bool:
        """Whether at least `percent` of the context is used."""
        return self.length is not None and 100 * self.tokens >= percent * self.length

    def status(self, t: Tick, detail: str) -> None:
        """Record a status line for people."""
        t.emit(Note(kind="status", detail=f"research: {self.label} | {detail}"))


def research(t: Tick) -> Program:
    """Record the task, then do one iteration per tick until there is a summary."""
    return begin(t) if t.number == 0 else (yield from iteration(t))


def begin(t: Tick) -> Ended:
    """Record the first messages: the system prompt and the task."""
    task = msgspec.convert(json.loads(t.bootstrap), Task)
    dialogue.say_system(t, prompts.text(f"research_{task.prompt}"), TOOLS)
    context = f"Context, from whoever asks:\n{task.context.strip()}\n\n" if task.context.strip() else ""
    t.say(BlockType.USER, f"{context}Research task:\n{task.task.strip()}")
    label = one_line(task.task)
    state = State(label=label if len(label) <= 50 else f"{label[:50]}…")
    state.status(t, "started")
    return dialogue.next_tick(state)


def iteration(t: Tick) -> Part[Ended]:
    """Have the model write one message, and answer its calls."""
    state = msgspec.convert(t.cursor.start.state, State)
    limit = MAX_MESSAGES if t.settings.steps is None else t.settings.steps
    if t.number > limit:
        return (yield from conclude(t, state, limit, "iterations_spent"))
    if state.used(STOP_PERCENT):
        return (yield from conclude(t, state, t.number - 1, "context_spent"))
    if (loop := doom_loop(state.recent)) is not None:
        state.status(t, f"goes round in circles: {loop}")
        t.say(BlockType.USER, prompts.message("research", "correction").format(loop=loop))
        state.recent = ()
    if state.used(WARN_PERCENT) and not state.warned:
        state.status(t, f"{state.tokens} of {state.length} tokens used")
        t.say(BlockType.USER, prompts.message("research", "warning").format(percent=WARN_PERCENT))
        state.warned = True
    try:
        message = yield from dialogue.reply(t, 0, TOOLS)
    except RolloutError as error:
        return ended(state, t.number - 1, error=error)
    state.tokens, state.length = message.tokens, message.candidate.length
    if message.calls:
        yield from look_up(t, state, message.calls)
        return dialogue.next_tick(state)
    if not message.answer:
        return (yield from conclude(t, state, t.number, "nothing_said"))
    state.status(t, f"done: {state.tool_calls} tool calls, {state.tokens} tokens")
    return ended(state, t.number, message.answer)


def look_up(t: Tick, state: State, calls: Sequence[dialogue.Call]) -> Part[None]:
    """Make the calls of a message side by side, and record the answers. Updates `state`."""
    surplus = f"not called: a message may have {MAX_CALLS} calls, write it again in the next one"
    errors = [call.error or (surplus if number >= MAX_CALLS else None) for number, call in enumerate(calls)]
    legal = [call for call, error in zip(calls, errors, strict=True) if error is None]
    steps = tuple(LookUp(tool=call.name, arguments=call.arguments) for call in legal)
    for step in steps:
        state.status(t, f"> {step.tool} {json.dumps(step.arguments)[:80]}")
    try:
        results: tuple[LookUpResult, ...] = (yield steps) if steps else ()
    except RolloutError as failure:
        results = (LookUpResult(success=False, output=f"the tool could not be run: {failure}"),) * len(steps)
    limit, made = allowance(state, len(calls)), iter(results)
    answers, digests = [], []
    for call, error in zip(calls, errors, strict=True):
        result = next(made) if error is None else LookUpResult(success=False, output=error)
        output = shorten(result.output, limit, HEAD_PERCENT)
        answer = {"success": True, "output": output} if result.success else dialogue.failed(output)
        answers.append(dialogue.response(answer))
        digests.append((digest(call.name, error or call.arguments), digest(result.success, result.output)))
    t.say(BlockType.TOOL, "\n".join(answers))
    state.tool_calls += len(steps)
    state.recent = (*state.recent, *digests)[-REMEMBERED_CALLS:]


def conclude(t: Tick, state: State, iterations: int, why: str) -> Part[Ended]:
    """Ask the model for its summary, without tools. `why`: the message that asks."""
    state.status(t, "asked for its summary")
    t.say(BlockType.USER, prompts.message("research", why).format(count=iterations))
    try:
        message = yield from dialogue.reply(t, 0)
    except RolloutError as error:
        return ended(state, iterations, error=error)
    state.tokens = message.tokens
    return ended(state, iterations, dialogue.TOOL_CALL.sub("", message.answer).strip())


def ended(state: State, iterations: int, summary: str = "", error: RolloutError | None = None) -> Ended:
    """End the trace. `error`: why the model could not write another message, for example a full context."""
    reason = f"Generation error: {error}" if error is not None else "the model wrote no summary"
    result = Result(
        summary=summary,
        iterations=iterations,
        tool_calls=state.tool_calls,
        total_tokens=state.tokens,
        error=None if summary else reason,
    )
    return dialogue.end_trace(result, error)


def allowance(state: State, answers: int) -> int:
    """Maximum characters of each of `answers` answers, so that the context keeps room for a summary."""
    if state.length is None:
        return MAX_ANSWER_CHARS
    room = STOP_PERCENT * state.length // 100 - state.tokens
    return max(MIN_ANSWER_CHARS, min(MAX_ANSWER_CHARS, CHARS_PER_TOKEN * room // answers))


def digest(*values: object) -> str:
    """A hash of JSON values. Equal values have equal hashes."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def doom_loop(recent: Sequence[CallDigest]) -> str | None:
    """Describe the repetition at the end of the calls. None: they do not repeat.

    A doom loop is either three equal calls with equal answers, or two equal sequences of 2 to 5 calls one after
    the other with any answers. The calls within a sequence are not all equal.
    """
    if len(recent) >= EQUAL_CALLS and len(set(recent[-EQUAL_CALLS:])) == 1:
        return f"the last {EQUAL_CALLS} calls were the same, and so were their answers"
    calls = [call for call, _ in recent]
    for length in SEQUENCE_LENGTHS:
        last, before = calls[-length:], calls[-2 * length : -length]
        if last == before and len(set(last)) > 1:
            return f"the last {length} calls are the {length} before them once more"
    return None
