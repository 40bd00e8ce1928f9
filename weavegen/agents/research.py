"""Research: looks things up for somebody else, in a context of its own, and gives back a summary.

A tick is one iteration: a message of the model's and the answers to its calls, which only read and run side by
side. A message without calls is the summary. When a budget is spent (the context, or the iterations) the model is
asked for its summary, and what it calls then is not called.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

import msgspec

from weavegen.agents.dialogue import CALL, Call, Reply, failed, reply, response, say, task_of, tools_text
from weavegen.agents.lookups import TOOLS
from weavegen.agents.program import Part, Tick
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import Ended, LookUp, LookUpResult, Note
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import one_line

ITERATIONS = 60
"""Messages of the model, where the job does not say how many; the summary that is asked for comes on top."""
WARNED_AT, STOPPED_AT = 85, 95
"""Percent of the context."""
LONGEST, HEAD, TAIL = 8_000, 4_800, 3_200
"""Characters of an answer; a longer one keeps so many of its beginning and of its end."""
LEAST = 200
"""Characters that an answer has where little of the context is left."""
CHARACTERS = 3
"""Of a token, at least, in most texts: for answers whose tokens nobody has counted yet."""
AT_ONCE = 16
"""Calls of one message that are made."""
SAME, REPEATED = 3, range(2, 6)
"""Equal calls in a row, and lengths of sequences, that are a doom loop."""
REMEMBERED = 2 * REPEATED[-1]

WARNING = (
    "{percent}% of your context is used. Look up only what the answer can't do without, in one or two more "
    "messages, then write the summary."
)
CONTEXT_SPENT = (
    "Your context is all but used up, and nothing more can be looked up. Write the summary now, from what you "
    "have read: no tool calls, they are not made."
)
ITERATIONS_SPENT = (
    "These were your {count} messages, and nothing more can be looked up. Write the summary now, of all that you "
    "have found: no tool calls, they are not made. Say what is still open."
)
NOTHING_SAID = "That message has neither a tool call nor a summary. Write the summary now: no tool calls."
CORRECTION = (
    "You are going round in circles: {loop}. Nothing changes while you read, so the same call brings the same "
    "answer. Say to yourself what you wanted to learn by it. Then go another way (other words, another tool, "
    "another document), or, if there is none, write the summary with what you have."
)


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What it is given."""

    task: str
    """What is to be found out."""
    context: str = ""
    """What the researcher must know of the caller's work."""
    prompt: Literal["general", "literature"] = "general"
    """literature: a ranked table of what has worked for others, in a fixed form."""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise ValueError("task is empty: say what is to be found out")

    @property
    def label(self) -> str:
        """For status lines."""
        text = one_line(self.task)
        return text if len(text) <= 50 else f"{text[:50]}…"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace returns."""

    summary: str
    """"" where there is none: `error` says why."""
    iterations: int
    """Messages of the model, a summary that it had to be asked for not counted."""
    tool_calls: int
    """That were made, whatever came of them."""
    total_tokens: int
    """Of the whole conversation, as far as the server says."""
    error: str | None = None


ToolSaved = tuple[str, str]
"""A call and what it brought, as hashes."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What an iteration hands on to the next."""

    label: str
    tokens: int = 0
    """Of the conversation up to the model's last message."""
    length: int | None = None
    """Tokens that it may take in all; None: the server does not say."""
    warned: bool = False
    tool_calls: int = 0
    recent: tuple[ToolSaved, ...] = ()
    """The last calls since the last correction, the newest last."""

    def used(self, percent: int) -> bool:
        """Whether so much of the context is used."""
        return self.length is not None and 100 * self.tokens >= percent * self.length


def research(t: Tick) -> Program:
    """The task first, then one iteration after another until there is a summary."""
    return (yield from (begin(t) if t.number == 0 else iteration(t)))


def begin(t: Tick) -> Part[Ended]:
    """Write down what the model reads first."""
    task = task_of(t.bootstrap, Task)
    if task is None:
        return Ended(done=True, failed="bootstrap", reason="this is no task for research: give a JSON object")
    yield say(BlockType.SYSTEM, prompts.text(f"research_{task.prompt}").replace("{tools}", tools_text(TOOLS)))
    asked = f"Research task:\n{task.task.strip()}"
    if task.context.strip():
        asked = f"Context, from whoever asks:\n{task.context.strip()}\n\n{asked}"
    yield say(BlockType.USER, asked)
    state = State(label=task.label)
    yield status(state, "started")
    return goes_on(state)


def iteration(t: Tick) -> Part[Ended]:
    """One message of the model's, and the answers to its calls."""
    state = msgspec.convert(t.cursor.start.state, State)
    most = ITERATIONS if t.settings.steps is None else t.settings.steps
    if t.number > most:
        return (yield from conclude(t, state, most, ITERATIONS_SPENT.format(count=most)))
    if state.used(STOPPED_AT):
        return (yield from conclude(t, state, t.number - 1, CONTEXT_SPENT))
    if (loop := doom_loop(state.recent)) is not None:
        yield status(state, f"goes round in circles: {loop}")
        yield say(BlockType.USER, CORRECTION.format(loop=loop))
        state = msgspec.structs.replace(state, recent=())
    if state.used(WARNED_AT) and not state.warned:
        yield status(state, f"{state.tokens} of {state.length} tokens used")
        yield say(BlockType.USER, WARNING.format(percent=WARNED_AT))
        state = msgspec.structs.replace(state, warned=True)
    try:
        said: Reply = yield from reply(t, 0, TOOLS)
    except RolloutError as error:
        return without(state, t.number - 1, error)
    state = msgspec.structs.replace(state, tokens=said.tokens, length=said.candidate.length)
    if not said.calls:
        if not said.answer:
            return (yield from conclude(t, state, t.number, NOTHING_SAID))
        yield status(state, f"done: {state.tool_calls} tool calls, {state.tokens} tokens")
        return ended(state, t.number, said.answer)
    return goes_on((yield from look_up(state, said.calls)))


def look_up(state: State, asked: Sequence[Call]) -> Part[State]:
    """Make the calls of a message, side by side, and write down the answers. Returns the state after that."""
    errors = [refusal(call, number) for number, call in enumerate(asked)]
    steps = [
        LookUp(tool=call.name, arguments=call.arguments)
        for call, error in zip(asked, errors, strict=True)
        if error is None
    ]
    for step in steps:
        yield status(state, f"> {step.tool} {json.dumps(step.arguments)[:80]}")
    results: tuple[LookUpResult, ...] = ()
    if steps:
        try:
            results = yield tuple(steps)
        except RolloutError as failure:
            results = (LookUpResult(success=False, output=f"the tool could not be run: {failure}"),) * len(steps)
    most, waiting = allowance(state, len(asked)), iter(results)
    answers, made = [], []
    for call, error in zip(asked, errors, strict=True):
        result = next(waiting) if error is None else LookUpResult(success=False, output=error)
        output = shorten(result.output, most)
        answers.append(response({"success": True, "output": output} if result.success else failed(output)))
        made.append((digest(call.name, error or call.arguments), digest(result.success, result.output)))
    yield say(BlockType.TOOL, "\n".join(answers))
    return msgspec.structs.replace(
        state, tool_calls=state.tool_calls + len(steps), recent=(*state.recent, *made)[-REMEMBERED:]
    )


def conclude(t: Tick, state: State, iterations: int, request: str) -> Part[Ended]:
    """Ask for the summary, with no tools."""
    yield status(state, "asked for its summary")
    yield say(BlockType.USER, request)
    try:
        said: Reply = yield from reply(t, 0)
    except RolloutError as error:
        return without(state, iterations, error)
    state = msgspec.structs.replace(state, tokens=said.tokens)
    return ended(state, iterations, CALL.sub("", said.answer).strip())


def goes_on(state: State) -> Ended:
    return Ended(done=False, state=msgspec.to_builtins(state))


def ended(state: State, iterations: int, summary: str, error: str | None = None) -> Ended:
    """The end with a summary; an empty one is none."""
    returned = Result(
        summary=summary,
        iterations=iterations,
        tool_calls=state.tool_calls,
        total_tokens=state.tokens,
        error=error if summary or error else "the model wrote no summary",
    )
    return Ended(done=True, returned=msgspec.to_builtins(returned))


def without(state: State, iterations: int, error: RolloutError) -> Ended:
    """The end where the model can't be asked any more: it may be that the conversation has become too long."""
    end = ended(state, iterations, "", f"Generation error: {error}")
    return msgspec.structs.replace(end, failed=error.kind, reason=str(error))


def status(state: State, detail: str) -> Note:
    """A line for people."""
    return Note(kind="status", detail=f"research: {state.label} | {detail}")


def refusal(call: Call, number: int) -> str | None:
    """Why the call at this place of a message is not made; None: it is."""
    if call.error is not None:
        return call.error
    if number >= AT_ONCE:
        return f"not called: a message may have {AT_ONCE} calls, write it again in the next one"
    try:
        check_json(call.arguments, call.name)  # the journal keeps them
    except UsageError as error:
        return str(error)
    return None


def allowance(state: State, answers: int) -> int:
    """Characters that each of some answers may have: the conversation must stay short enough for a summary."""
    if state.length is None:
        return LONGEST
    room = STOPPED_AT * state.length // 100 - state.tokens
    return max(LEAST, min(LONGEST, CHARACTERS * room // answers))


def shorten(text: str, most: int = LONGEST) -> str:
    """A text of `most` characters, its beginning and its end kept, with a mark between that says what is gone."""
    if len(text) <= most:
        return text
    head = most * HEAD // LONGEST
    return f"{text[:head]}\n... ({len(text) - most} characters left out) ...\n{text[head - most :]}"


def digest(*values: object) -> str:
    """A hash that equal JSON values share."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def doom_loop(recent: Sequence[ToolSaved]) -> str | None:
    """What the last calls repeat, in words; None: nothing.

    Either the last three calls are equal and brought the same; or the last 2 to 5 calls, not all of them equal,
    are those that were made just before, in the same order, whatever they brought.
    """
    if len(recent) >= SAME and len(set(recent[-SAME:])) == 1:
        return f"the last {SAME} calls were the same, and so were their answers"
    calls = [call for call, _ in recent]
    for length in REPEATED:
        last, before = calls[-length:], calls[-2 * length : -length]
        if last == before and len(set(last)) > 1:
            return f"the last {length} calls are the {length} before them once more"
    return None
