"""ReAct: reason, act, observe, with tags in the text. The baseline for measurements of the weave agent.

After ReAct (Yao et al., arXiv:2210.03629). The model thinks in `<think>`, calls tools in `<tool_call>`, and reads
`<tool_response>`. A tick is one message of the model with the answers to its calls. A message without calls is the
final answer.
"""

import ast
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from weavegen.agents import dialogue, mcp_tools, tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.library import library_tool, signature_of
from weavegen.agents.world import state_of, waits, with_result
from weavegen.errors import RolloutError
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Append, Ended, Executed
from weavegen.linting.truncate import parse
from weavegen.python_parser import NO_PYTHON
from weavegen.trace.blocks import BlockType

MAX_MESSAGES = 50
"""Default of the setting `steps`: messages that the model writes."""
NO_ANSWER = ("length", "content_filter", "refusal")
"""Finish reasons of a message without calls that is no final answer: it was cut off, or the model refuses."""
WAITS = "its first action waits for an agent or a block, which react can't do: take it out, or use the agent weave"


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for ReAct. The agent also takes bootstrap files."""

    task: str
    messages: tuple[dialogue.Message, ...] = ()
    """Messages between the system prompt and the task."""
    system: str | None = None
    """A system prompt instead of the default one. `{tools}` in it becomes the tools' schemas."""
    single: bool = False
    """Whether to stop after one message of the model and its tool calls."""
    research: bool = False
    """Whether the model may have the agent research look things up."""
    tools: str = ""
    """Python source. Its functions are further tools, which run in the box; those whose names begin with _ are not."""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise ValueError("task is empty: describe what to do")
        own_tools(self.tools)


@lru_cache(maxsize=64)  # every message needs the tools again
def own_tools(source: str) -> tuple[dialogue.Tool, ...]:
    """The functions of a task's own source as tools. Raises ValueError if one can't be a tool."""
    try:
        nodes = [node for node in parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    except NO_PYTHON as error:
        raise ValueError(f"tools: this is not legal Python: {error}") from None
    functions = [node for node in nodes if not node.name.startswith("_")]
    if coroutine := next((node.name for node in functions if isinstance(node, ast.AsyncFunctionDef)), None):
        raise ValueError(f"tools: {coroutine} is async: write `def {coroutine}`")
    signatures = [signature_of(source, node.name) for node in functions]
    if taken := {one.name for one in signatures} & {tool.name for tool in (*dialogue.BOX_TOOLS, dialogue.RESEARCH)}:
        raise ValueError(f"tools: there is a tool {min(taken)} already: rename the function")
    if source and not signatures:
        raise ValueError("tools: the source defines no function")
    return tuple(library_tool(one.name, one.line, one.description) for one in signatures)


class State(msgspec.Struct):
    """The state that a tick passes to the next tick."""

    single: bool
    checked: bool
    """Whether to run evaluations at the end: a bootstrap file defined the task."""
    step: int = 0
    """Of a Harbor task: the step that it works on (agents/harbor.py)."""
    rewards: tuple[dict[str, float], ...] = ()
    """Of a Harbor task: the rewards of the previous steps."""


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
    listed = yield from mcp_tools.listing(t)
    if task is None:
        ordinal = t.cursor.ordinal
        executed: Executed = yield t.execute("bootstrap")
        t.append(with_result(Append(type=BlockType.BOOTSTRAP, body=t.bootstrap), executed, ordinal))
        if (error := executed.error) is not None or waits(executed):  # nobody would resume it
            why = WAITS if error is None else f"{error.type}: {error.message}"
            return Ended(done=True, failed="bootstrap", reason=why)
        world: Executed = yield t.execute("begin")
        views = (f"{view.title}:\n{view.error.message if view.error else view.text}" for view in world.views)
        text = prompts.text("react_task").replace("{description}", state_of(world, "main").description.strip())
        task = Task(text.replace("{bootstrap}", t.bootstrap.strip()).replace("{views}", "\n\n".join(views)).strip())
    system = prompts.text("react") if task.system is None else task.system
    dialogue.say_system(t, system, tools_of(task, listed), mcp_tools.unusable(listed))
    for message in task.messages:
        t.say(message.role, message.content)
    t.say(BlockType.USER, task.task)
    return dialogue.next_tick(state)


def step(t: Tick) -> Part[Ended]:
    """Have the model write one message, and answer its calls one after another."""
    state = msgspec.convert(t.cursor.start.state, State)
    written = t.number - state.step  # without the ticks that verified earlier steps of a Harbor task
    limit = MAX_MESSAGES if t.settings.steps is None else t.settings.steps
    task = dialogue.task_of(t.bootstrap, Task)
    tools = tools_of(task, t.listed or {})
    try:
        message = yield from dialogue.reply(t, 0, tools)
    except RolloutError as error:  # the conversation so far is kept
        return dialogue.end_trace(Result(success=False, steps=written - 1, error=f"Generation error: {error}"), error)
    if message.calls:
        answers = []
        for call in message.calls:
            answer = yield from answer_call(t, task, call, tools)
            answers.append(dialogue.response(answer))
        t.say(BlockType.TOOL, "\n".join(answers))
    unfinished = bool(message.calls) and not state.single
    if unfinished and written < limit:
        return dialogue.next_tick(state)
    checked = Executed()
    if state.checked:  # a bootstrap file defined the task: as in the weave agent
        checked = yield t.execute("evaluate")
        t.say(BlockType.OUTCOME, "\n".join(["Outcome:", *tables.evaluation_rows(checked.evaluations)]))
    problem = f"Reached maximum steps ({limit})" if unfinished else None
    finish = message.candidate.finish_reason
    if not message.calls and (not message.answer or finish in NO_ANSWER):
        problem = f"No final answer ({finish})"
    counted = [evaluated for evaluated in checked.evaluations if evaluated.cause is None]
    true = all(evaluated.error is None and evaluated.value is True for evaluated in counted)
    values = {evaluated.title: evaluated.value for evaluated in checked.evaluations}
    return dialogue.end_trace(
        Result(
            success=problem is None and (None if true and len(counted) < len(checked.evaluations) else true),
            final_response="" if unfinished else message.answer,
            steps=written,
            total_tokens=message.tokens,
            error=problem,
            metadata={"evaluations": values} if values else {},
        )
    )


def tools_of(task: Task | None, listed: dict[str, Any]) -> list[dialogue.Tool]:
    """The tools of a task, with those of the listed MCP servers. `task` None: a bootstrap file defined the task."""
    research = [dialogue.RESEARCH] if task is not None and task.research else []
    own = () if task is None else own_tools(task.tools)
    return [*dialogue.BOX_TOOLS, *research, *own, *mcp_tools.tools_in(listed)]


def answer_call(
    t: Tick, task: Task | None, call: dialogue.Call, tools: Sequence[dialogue.Tool]
) -> Part[dict[str, Any]]:
    """Make a call. Returns the answer for the model."""
    if task is not None and call.error is None and call.name in {tool.name for tool in own_tools(task.tools)}:
        code = OWN_TOOL.format(source=task.tools, name=call.name, arguments=json.dumps(call.arguments))
        return (yield from dialogue.call_in_box(t, "python", {"code": code}))
    return (yield from dialogue.answer_call(t, call, tools))


OWN_TOOL = """def _call_task_tool():
    import json, sys, types
    if "task_tools" not in sys.modules:
        module = sys.modules["task_tools"] = types.ModuleType("task_tools")  # dataclasses look here
        try:
            exec({source!r}, module.__dict__)
        except BaseException:
            del sys.modules["task_tools"]
            raise
    value = sys.modules["task_tools"].{name}(**json.loads({arguments!r}))
    if value is not None:
        print(value if isinstance(value, str) else repr(value))

_call_task_tool()
"""
"""Code that calls a function of the task's source. The source is executed before the first call."""
