"""ReAct: reason, act, observe, with tags in the text. The baseline for measurements of the weave agent.

After ReAct (Yao et al., arXiv:2210.03629). The model thinks in `<think>`, calls tools in `<tool_call>`, and reads
`<tool_response>`. A tick is one message of the model with the answers to its calls. A message without calls is the
final answer.
"""

from typing import Any

import msgspec

from weavegen.agents import dialogue, tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.world import with_result
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Append, Ended, Evaluated, Executed
from weavegen.trace.blocks import BlockType

MAX_MESSAGES = 50
"""Default of the setting `steps`: messages that the model writes."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for ReAct. The agent also takes bootstrap files."""

    task: str
    messages: tuple[dialogue.Message, ...] = ()
    """Messages between the system prompt and the task."""
    system: str | None = None
    """A system prompt instead of the default one. `{tools}` in it becomes the tools' schemas."""
    single: bool = False
    """Whether to stop after one message of the model and its tool calls."""


class State(msgspec.Struct):
    """The state that a tick passes to the next tick."""

    single: bool
    checked: bool
    """Whether to run evaluations at the end: a bootstrap file defined the task."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The value that a trace returns."""

    success: bool | None
    """Whether there is a final answer and every evaluation is true. None: one was not evaluated, and none is false."""
    final_response: str = ""
    steps: int = 0
    """Messages that the model wrote."""
    total_tokens: int = 0
    """Tokens of the conversation."""
    error: str | None = None
    metadata: dict[str, Any] = {}


def react(t: Tick) -> Program:
    """Record the task, then do one step per tick until the model calls no tool."""
    return (yield from (begin(t) if t.number == 0 else step(t)))


def begin(t: Tick) -> Part[Ended]:
    """Record the first messages. A bootstrap file is executed first, and its environment defines the task."""
    task = dialogue.task_of(t.bootstrap, Task)
    state = State(single=task is not None and task.single, checked=task is None)
    if task is None:
        ordinal = t.cursor.ordinal
        executed: Executed = yield t.execute("bootstrap")
        t.append(with_result(Append(type=BlockType.BOOTSTRAP, body=t.bootstrap), executed, ordinal))
        if (error := executed.error) is not None:
            return Ended(done=True, failed="bootstrap", reason=f"{error.type}: {error.message}")
        world: Executed = yield t.execute("begin")
        task = Task(task_text(t.bootstrap, world))
    system = prompts.text("react") if task.system is None else task.system
    t.say(BlockType.SYSTEM, system.replace("{tools}", dialogue.tools_text(dialogue.BOX_TOOLS)))
    for message in task.messages:
        t.say(message.role, message.content)
    t.say(BlockType.USER, task.task)
    return dialogue.next_tick(state)


def step(t: Tick) -> Part[Ended]:
    """Have the model write one message, and answer its calls one after another."""
    state = msgspec.convert(t.cursor.start.state, State)
    limit = MAX_MESSAGES if t.settings.steps is None else t.settings.steps
    try:
        message = yield from dialogue.reply(t, 0, dialogue.BOX_TOOLS)
    except RolloutError as error:  # the conversation so far is kept
        return dialogue.end_trace(Result(success=False, steps=t.number - 1, error=f"Generation error: {error}"), error)
    if message.calls:
        answers = []
        for call in message.calls:
            if call.error is not None:
                answer = dialogue.failed(call.error)
            else:
                answer = yield from dialogue.call_in_box(t, call.name, call.arguments)
            answers.append(dialogue.response(answer))
        t.say(BlockType.TOOL, "\n".join(answers))
    unfinished = bool(message.calls) and not state.single
    if unfinished and t.number < limit:
        return dialogue.next_tick(state)
    evaluations: tuple[Evaluated, ...] = (yield from evaluate(t)) if state.checked else ()
    counted = [evaluated for evaluated in evaluations if evaluated.cause is None]
    passed = all(evaluated.error is None and evaluated.value is True for evaluated in counted)
    known = not passed or len(counted) == len(evaluations)
    values = {evaluated.title: evaluated.value for evaluated in evaluations}
    return dialogue.end_trace(
        Result(
            success=passed and not unfinished if known or unfinished else None,
            final_response="" if unfinished else message.answer,
            steps=t.number,
            total_tokens=message.tokens,
            error=f"Reached maximum steps ({limit})" if unfinished else None,
            metadata={"evaluations": values} if values else {},
        )
    )


def task_text(bootstrap: str, world: Executed) -> str:
    """The task that a bootstrap file defines: its description, its source, and the observation views."""
    views = (f"{view.title}:\n{view.text or view.error}" for view in world.views)
    text = prompts.text("react_task").replace("{description}", world.subagents[0].description.strip())
    return text.replace("{bootstrap}", bootstrap.strip()).replace("{views}", "\n\n".join(views)).strip()


def evaluate(t: Tick) -> Part[tuple[Evaluated, ...]]:
    """Run the task's evaluations and record their results, as the weave agent does."""
    checked: Executed = yield t.execute("evaluate")
    rows = ["Outcome:", *tables.evaluation_rows(checked.evaluations)]
    t.say(BlockType.OUTCOME, "\n".join(rows))
    return checked.evaluations
