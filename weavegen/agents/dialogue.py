"""Messages, replies and tool calls of the agents that converse."""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, get_type_hints

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.box import calls
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel import prompts
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import Append, Candidate, Delegate, Delegated, Ended, Executed, Prompt, Sample
from weavegen.kernel.template import json_between_tags, split_thoughts
from weavegen.pool.chat_messages import read_call
from weavegen.trace.blocks import BlockType

TOOL_CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
CALL_EXAMPLE = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
Task = TypeVar("Task", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message at the beginning of a conversation."""

    role: BlockType
    content: str

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"{self.role!r} is not a role: choose system, user, assistant or tool")


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it. `error`: why it can't be made; None if it can."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Reply:
    """A recorded message of the model."""

    candidate: Candidate
    calls: list[Call]

    @property
    def tokens(self) -> int:
        """Tokens of the conversation up to and including this message."""
        return (self.candidate.prompt_tokens or 0) + self.candidate.tokens

    @property
    def answer(self) -> str:
        """The text without its <think> parts."""
        return split_thoughts(self.candidate.text)[0].strip()


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    description: str
    arguments: type[msgspec.Struct] | None = None
    """What a call is checked against. None: a server checks it."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """JSON schema of the arguments, if they have no struct."""
    remote: tuple[str, str] | None = None
    """The MCP server that has the tool, and the tool's name there."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """A tool with the signature and the docstring of a Python function."""
        hints = get_type_hints(function)
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            required = parameter.default is inspect.Parameter.empty
            fields.append((name, hints[name]) if required else (name, hints[name], parameter.default))
        return cls(function.__name__, inspect.getdoc(function) or "", arguments_struct(function.__name__, fields))

    def schema(self) -> dict[str, Any]:
        """The JSON schema, in the form of OpenAI's API for functions."""
        parameters = self.parameters
        if self.arguments is not None:
            [definition] = msgspec.json.schema_components([self.arguments])[1].values()
            parameters = {key: value for key, value in definition.items() if key not in ("title", "description")}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def complaint(self, arguments: dict[str, Any]) -> str | None:
        """What is wrong with the arguments of a call. None: they are valid."""
        try:
            check_json(arguments, "arguments")  # the journal stores them
            msgspec.convert(arguments, dict if self.arguments is None else self.arguments)
        except (UsageError, msgspec.ValidationError) as error:
            return f"{self.name}: {error}"
        return None


def arguments_struct(name: str, fields: list[Any]) -> type[msgspec.Struct]:
    """The arguments of tool `name`. A field is (name, type) or (name, type, default)."""
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)


BOX_TOOLS = [Tool.of(function) for function in calls.FUNCTIONS.values()]
"""The functions of box/calls.py."""


def declared_tool(name: str) -> Tool:
    """A tool that prompts/tools.toml declares."""
    return Tool(name, prompts.tool(name), prompts.arguments(name))


RESEARCH = declared_tool("research")


def schemas(tools: Sequence[Tool]) -> str:
    """The schemas as `Append.tools` has them."""
    return json.dumps([tool.schema() for tool in tools], ensure_ascii=False)


def tools_text(tools: Sequence[Tool]) -> str:
    """The schemas for a system prompt, one per line."""
    return "\n".join(json.dumps(tool.schema(), ensure_ascii=False) for tool in tools)


def calls_in(text: str, tools: Sequence[Tool]) -> list[Call]:
    """The tool calls of a reply, in order, without those inside <think>."""
    by_name, said = {tool.name: tool for tool in tools}, split_thoughts(text)[0]
    return [_call(match[1], bool(match[2]), by_name) for match in TOOL_CALL.finditer(said)]


def _call(text: str, closed: bool, tools: dict[str, Tool]) -> Call:
    if not closed:
        return Call("", error=f"the call is not closed: write {CALL_EXAMPLE}")
    try:
        name, arguments = read_call(text)
    except ValueError as error:
        return Call("", error=f"{error}: write {CALL_EXAMPLE}")
    if name not in tools:
        return Call(name[:200], error=f"there is no tool {name[:200]!r}: choose one of {', '.join(tools)}")
    return Call(name, arguments, tools[name].complaint(arguments))


def response(value: object) -> str:
    """A tool's answer as the model reads it. The key `success` comes first."""
    if isinstance(value, dict):
        value = {"success": value.get("success", True)} | value
    return f"<tool_response>{json_between_tags(value)}</tool_response>"


def failed(error: str | None) -> dict[str, Any]:
    """The answer to a call that failed or could not be made."""
    return {"success": False, "error": error}


def say_system(t: Tick, text: str, tools: Sequence[Tool], more: str = "") -> None:
    """Begin a conversation with these tools, whose schemas replace `{tools}` in the text. `more` follows the text."""
    t.say(BlockType.SYSTEM, text.replace("{tools}", tools_text(tools)) + more, schemas(tools))


def answer_call(t: Tick, call: Call, tools: Sequence[Tool]) -> Part[dict[str, Any]]:
    """Make a call that every agent makes in the same way. Returns the answer for the model."""
    if call.error is not None:
        return failed(call.error)
    if call.name == RESEARCH.name:
        return (yield from find_out(t, call.arguments["task"]))
    remote = next((tool.remote for tool in tools if tool.name == call.name), None)
    return (yield from call_in_box(t, call.name, call.arguments, remote))


def call_in_box(
    t: Tick, name: str, arguments: dict[str, Any], remote: tuple[str, str] | None = None
) -> Part[dict[str, Any]]:
    """Call a function of box/calls.py, or a `remote` tool, in the trace's environment. Returns its answer."""
    request: dict[str, Any] = {"name": name, "arguments": arguments}
    if remote is not None:
        request |= {"server": remote[0], "name": remote[1]}
    executed: Executed = yield t.execute("call" if remote is None else "tool", source=json.dumps(request))
    if executed.error is not None:
        return failed(f"{executed.error.type}: {executed.error.message}")
    value: dict[str, Any] = executed.value
    return value


def find_out(t: Tick, task: str) -> Part[dict[str, Any]]:
    """Have the agent research look something up, in a trace of its own. Returns the answer for the model."""
    if not task.strip():
        return failed("the task is empty: say what to look up")
    done: Delegated = yield Delegate(agent="research", task={"task": task}, label=task[:60])
    found = done.returned or {"summary": "", "error": done.error}
    summary = found["summary"]
    return {"success": True, "output": summary} if summary else failed(f"nothing was found: {found['error']}")


def reply(t: Tick, first: int, tools: Sequence[Tool] = ()) -> Part[Reply]:
    """Sample and record the next message of the conversation that begins with block `first`."""
    began, ordinal = t.cursor.now, t.cursor.ordinal
    [candidate] = yield sample_messages(t, first)
    t.append(message_of(t, candidate, (ordinal, 0), began))
    return Reply(candidate, calls_in(candidate.text, tools))


def sample_messages(t: Tick, first: int, n: int = 1) -> Sample:
    """The step that samples `n` candidates for the next message. Result: `list[Candidate]`."""
    s = t.settings.of(BlockType.ASSISTANT)
    prompt = Prompt(type=BlockType.ASSISTANT, window=(first, t.cursor.index))
    return t.sample(prompt, s, "message", n, round=0, max_tokens=s.max_tokens)


def message_of(t: Tick, candidate: Candidate, at: tuple[int, int], began: float) -> Append:
    """The message that a candidate becomes. `at`: (ordinal of the Sample step, position in its result)."""
    limit = t.settings.of(BlockType.ASSISTANT).max_tokens
    if candidate.length is not None and candidate.prompt_tokens is not None:
        room = candidate.length - candidate.prompt_tokens
        limit = min(limit or room, room)
    size = limit or candidate.tokens
    return Append(type=BlockType.ASSISTANT, body=candidate.text, began=began, candidate=at, block_size=size)


def task_of(source: str, type: type[Task]) -> Task | None:
    """The agent's task. None: `source` is a bootstrap file. Raises msgspec.ValidationError for an invalid task."""
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        return None
    return msgspec.convert(value, type)


def next_tick(state: msgspec.Struct) -> Ended:
    """End the tick. The next tick starts with `state`."""
    return Ended(done=False, state=msgspec.to_builtins(state))


def end_trace(result: msgspec.Struct, error: RolloutError | None = None) -> Ended:
    """End the trace with a result. `error`: the failure that ended it early."""
    returned = msgspec.to_builtins(result)
    if error is None:
        return Ended(done=True, returned=returned)
    return Ended(done=True, returned=returned, failed=error.kind, reason=str(error))
