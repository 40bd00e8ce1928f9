"""ReAct: reason, act, observe, with tags in the text. What the weave agent is measured against.

The model thinks in `<think>`, calls tools in `<tool_call>`, and reads `<tool_response>`. A tick is one step: a
message of the model's and the answers to its calls. A message without calls is the final answer.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.agents import tables
from weavegen.agents.dialogue import Call, Message, Reply, Tool, failed, reply, response, say, task_of, tools_text
from weavegen.agents.program import Part, Tick
from weavegen.agents.world import with_result
from weavegen.box import calls
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Append, Ended, Evaluated, Executed
from weavegen.trace.blocks import BlockType

STEPS = 50
"""Messages of the model, where the job does not say how many."""
TOOLS = [Tool(function) for function in calls.FUNCTIONS.values()]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What it is given, where that is no bootstrap file."""

    task: str
    messages: tuple[Message, ...] = ()
    """What the conversation begins with, between the system prompt and the task."""
    system: str | None = None
    """In place of our system prompt; `{tools}` in it becomes the tools' schemas."""
    single: bool = False
    """One turn: the model's next message, its tool calls carried out, and no more."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace returns. `success`: it came to a final answer, and its task's evaluations, if any, hold."""

    success: bool
    final_response: str = ""
    steps: int = 0
    """Messages of the model."""
    total_tokens: int = 0
    """Of the whole conversation."""
    error: str | None = None
    metadata: dict[str, Any] = {}


def react(t: Tick) -> Program:
    """The task first, then one step after another until the model calls no tool."""
    return (yield from (begin(t) if t.number == 0 else step(t)))


def begin(t: Tick) -> Part[Ended]:
    """Write down what the model reads first. A bootstrap file is executed: it makes the world, names the task."""
    task = task_of(t.bootstrap, Task)
    if task is None:
        ordinal = t.cursor.ordinal
        executed: Executed = yield t.execute("bootstrap")
        yield with_result(Append(type=BlockType.BOOTSTRAP, body=t.bootstrap), executed, ordinal)
        if (error := executed.error) is not None:
            return Ended(done=True, failed="bootstrap", reason=f"{error.type}: {error.message}")
        world: Executed = yield t.execute("begin")
        task = Task(told(t.bootstrap, world))
    system = prompts.text("react") if task.system is None else task.system
    yield say(BlockType.SYSTEM, system.replace("{tools}", tools_text(TOOLS)))
    for one in task.messages:
        yield say(one.role, one.content)
    yield say(BlockType.USER, task.task)
    return Ended(done=False, state={"single": task.single, "checked": not t.bootstrap.startswith("{")})


def step(t: Tick) -> Part[Ended]:
    """One message, and the answers to its calls."""
    try:
        said: Reply = yield from reply(t, 0, TOOLS)
    except RolloutError as error:  # what was said until now stays
        returned = Result(success=False, steps=t.number - 1, error=f"Generation error: {error}")
        return Ended(done=True, failed=error.kind, reason=str(error), returned=msgspec.to_builtins(returned))
    if said.calls:
        yield say(BlockType.TOOL, "\n".join((yield from carry_out(t, said.calls))))
    single = t.cursor.start.state["single"]
    most = STEPS if t.settings.steps is None else t.settings.steps
    if said.calls and not single and t.number < most:
        return Ended(done=False, state=t.cursor.start.state)
    unfinished = f"Reached maximum steps ({most})" if said.calls and not single else None
    evaluations: tuple[Evaluated, ...] = ()
    if t.cursor.start.state["checked"]:
        evaluations = yield from evaluate(t)
    held = all(one.error is None and one.value is True for one in evaluations)
    returned = Result(
        success=unfinished is None and held,
        final_response="" if said.calls and not single else said.answer,
        steps=t.number,
        total_tokens=said.tokens,
        error=unfinished,
        metadata={"evaluations": {one.title: one.value for one in evaluations}} if evaluations else {},
    )
    return Ended(done=True, returned=msgspec.to_builtins(returned))


def told(bootstrap: str, world: Executed) -> str:
    """The task of a bootstrap file: what it describes, what it defines, and what can be seen now."""
    views = (f"{view.title}:\n{view.text or view.error}" for view in world.views)
    text = prompts.text("react_task").replace("{description}", world.subagents[0].description.strip())
    return text.replace("{bootstrap}", bootstrap.strip()).replace("{views}", "\n\n".join(views)).strip()


def evaluate(t: Tick) -> Part[tuple[Evaluated, ...]]:
    """The task's evaluations, as a weave agent's outcome has them."""
    checked: Executed = yield t.execute("evaluate")
    rows = ["Outcome:", *tables.evaluation_rows(checked.evaluations)]
    yield Append(type=BlockType.OUTCOME, body="\n".join(rows))
    return checked.evaluations


def carry_out(t: Tick, asked: Sequence[Call]) -> Part[list[str]]:
    """The answers to tool calls, one after the other, as the model reads them."""
    answers = []
    for call in asked:
        if call.error is not None:
            answers.append(response(failed(call.error)))
            continue
        source = json.dumps({"name": call.name, "arguments": call.arguments})
        executed: Executed = yield t.execute("call", source=source)
        error = executed.error
        answers.append(response(executed.value if error is None else failed(f"{error.type}: {error.message}")))
    return answers
