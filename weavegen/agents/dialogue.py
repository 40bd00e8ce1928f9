"""What the agents share that converse: messages, replies, and the tool calls that stand in a reply's text."""

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.kernel.steps import Append, Candidate, Prompt, Sample
from weavegen.trace.blocks import Block, BlockType

CALL = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
EXAMPLE = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
Task = TypeVar("Task", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One that a conversation begins with."""

    role: BlockType
    content: str

    def __post_init__(self) -> None:
        if self.role not in ("system", "user", "assistant", "tool"):
            raise ValueError(f"{self.role!r} is no role: choose system, user, assistant or tool")


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it; where it can't be made, `error` says why."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


@dataclass(frozen=True)
class Reply:
    """A message that the model wrote, recorded."""

    block: Block
    candidate: Candidate
    calls: list[Call]

    @property
    def tokens(self) -> int:
        """Of the conversation up to its end."""
        return (self.candidate.prompt_tokens or 0) + self.candidate.tokens

    @property
    def answer(self) -> str:
        """Its text without what was thought."""
        return THOUGHT.sub("", self.candidate.text).strip()


class Tool:
    """A function that the model may call, as it reads it: its schema is made of signature and docstring."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.description = inspect.getdoc(function) or ""
        hints = get_type_hints(function)
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            required = parameter.default is inspect.Parameter.empty
            fields.append((name, hints[name]) if required else (name, hints[name], parameter.default))
        self._arguments = msgspec.defstruct(self.name, fields, forbid_unknown_fields=True, kw_only=True)

    def schema(self) -> dict[str, Any]:
        """As JSON schema, in the form that OpenAI's API has for functions."""
        [definition] = msgspec.json.schema_components([self._arguments])[1].values()
        parameters = {key: value for key, value in definition.items() if key not in ("title", "description")}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def complaint(self, arguments: dict[str, Any]) -> str | None:
        """Why it can't be called with these; None: it can."""
        try:
            msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            return f"{self.name}: {error}"
        return None


def tools_text(tools: Sequence[Tool]) -> str:
    """The schemas of tools as a system prompt has them, one a line."""
    return "\n".join(json.dumps(tool.schema(), ensure_ascii=False) for tool in tools)


def calls_in(text: str, tools: Sequence[Tool]) -> list[Call]:
    """The tool calls of a reply, in order. What is thought about, in <think>, is not called."""
    known = {tool.name: tool for tool in tools}
    return [_call(match[1], closed=bool(match[2]), known=known) for match in CALL.finditer(THOUGHT.sub("", text))]


def _call(text: str, closed: bool, known: dict[str, Tool]) -> Call:
    if not closed:
        return Call("", error=f"the call is not closed: write {EXAMPLE}")
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        return Call("", error=f"the call is no JSON ({error}): write {EXAMPLE}")
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return Call("", error=f"the call has no name: write {EXAMPLE}")
    name, arguments = value["name"], value.get("arguments", {})
    if name not in known:
        return Call(name[:200], error=f"there is no tool {name[:200]!r}: choose one of {', '.join(known)}")
    if not isinstance(arguments, dict):
        return Call(name, error=f"arguments must be an object: write {EXAMPLE}")
    return Call(name, arguments, known[name].complaint(arguments))


def response(value: object) -> str:
    """What a tool answered, as the model reads it: whether it worked first."""
    if isinstance(value, dict):
        value = {"success": value.get("success", True)} | value
    return f"<tool_response>{json.dumps(value, ensure_ascii=False)}</tool_response>"


def failed(error: str | None) -> dict[str, Any]:
    """The answer to a call that could not be made."""
    return {"success": False, "error": error}


def say(type: BlockType, text: str) -> Append:
    """A message that the model reads."""
    return Append(type=type, body=text)


def reply(t: Tick, first: int, tools: Sequence[Tool] = ()) -> Part[Reply]:
    """Have the model write the next message of the conversation that begins with block `first`; record it."""
    began, ordinal = t.cursor.now, t.cursor.ordinal
    [candidate] = yield message(t, first)
    block: Block = yield taken(t, candidate, (ordinal, 0), began)
    return Reply(block, candidate, calls_in(candidate.text, tools))


def taken(t: Tick, candidate: Candidate, at: tuple[int, int], began: float) -> Append:
    """The message that a candidate becomes; `at`: ordinal of its step and position."""
    most = t.settings.of(BlockType.ASSISTANT).max_tokens
    if candidate.length is not None and candidate.prompt_tokens is not None:
        room = candidate.length - candidate.prompt_tokens
        most = min(most or room, room)
    size = most or candidate.tokens
    return Append(type=BlockType.ASSISTANT, body=candidate.text, began=began, candidate=at, block_size=size)


def message(t: Tick, first: int, n: int = 1, round: int = 0) -> Sample:
    """The step that samples `n` candidates for that message. Result: `list[Candidate]`."""
    s = t.settings.of(BlockType.ASSISTANT)
    return Sample(
        prompt=Prompt(type=BlockType.ASSISTANT, window=(first, t.cursor.index)),
        n=n,
        round=round,
        max_tokens=s.max_tokens,
        temperature=s.temperature,
        top_k=s.top_k,
        repetition_penalty=s.repetition_penalty,
        seed=t.seed("message"),
    )


def task_of(source: str, type: type[Task]) -> Task | None:
    """The task that an agent was given; None where it is a bootstrap file instead.

    Raises msgspec.ValidationError where it is a task of another form.
    """
    try:
        value = json.loads(source)
    except (ValueError, RecursionError):
        return None
    return msgspec.convert(value, type)
