"""Data and steps that the toolsmith's stages share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from weavegen.agents import dialogue
from weavegen.agents.dialogue import reply
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.lines import Approach, Need
from weavegen.kernel import prompts
from weavegen.kernel.steps import Ended, LookUp, LookUpResult, Note
from weavegen.trace.blocks import BlockType

R = TypeVar("R")
MAX_ATTEMPTS = 3
"""Messages that the model may write until a stage can parse its answer."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task for the toolsmith."""

    task: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    user: str = ""
    request: int | None = None
    """Number of the user's request, which the user may change later. None: there is only this task."""

    def __post_init__(self) -> None:
        if not self.task.strip():
            raise ValueError("task is empty: say what is wanted")


class Request(msgspec.Struct, frozen=True):
    """The current text of the request."""

    objective: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    revision: int = 0

    def text(self) -> str:
        """The request for the model."""
        lists = (("Requirements", self.requirements), ("Constraints", self.constraints))
        named = (bullets(title, lines) for title, lines in lists if lines)
        return "\n\n".join([f"The request:\n{self.objective}", *named])


class Found(msgspec.Struct, frozen=True):
    """A tool of the library, as `find_tools` and `read_tool` return it."""

    name: str
    description: str
    signature: str
    version: int
    uses: int = 0
    successes: int = 0

    def text(self) -> str:
        """The tool for the model."""
        used = f"called {self.uses} times, {self.successes} of them with success" if self.uses else "not used yet"
        return f"{self.signature}\n    {' '.join(self.description.split())}\n    ({used})"


class ToolPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool to be made."""

    need: Need
    stub: str = ""
    """Source of its signature and docstring. Empty until the stage `signature` has chosen the signature."""
    generality: float | None = None
    old: dict[str, Any] = {}
    """Source, tests and evaluator of the current version, which the new version must beat."""


class State(msgspec.Struct, omit_defaults=True):
    """The state that a tick passes to the next tick."""

    stage: str = "queries"
    queries: dict[str, list[str]] = {}
    context: str = ""
    """The summary."""
    plan: list[Approach] = []
    rounds: int = 0
    """Plans so far."""
    tried: list[str] = []
    """Failures, one text each."""
    tools: list[Found] = []
    """Tools of the library that the stage `execute` offers to the model."""
    wanted: list[ToolPlan] = []
    made: list[str] = []
    used: list[str] = []
    """Called tools of the library: NAME@VERSION."""
    done: str = ""
    """Results that the model had before it asked for another tool."""
    first: int | None = None
    """First block of the conversation of `execute`. None: it has not begun."""
    revision: int = 0
    """The last revision of the request that the model has read in `execute`."""
    turns: int = 0
    silent: int = 0
    """Messages in a row without a call."""
    questions: int = 0

    def context_text(self) -> str:
        """The summary for the model."""
        return f"What is known:\n{self.context or '(nothing)'}"

    def plan_text(self) -> str:
        """The plan for the model."""
        lines = [a.text + "".join(f"\n  with {n.name}: {n.description}" for n in a.needs) for a in self.plan]
        return bullets("The plan", lines)

    def failure_text(self) -> list[str]:
        """The failures for the model: one text, or no text if there are no failures."""
        return [bullets("What came to nothing", self.tried)] if self.tried else []


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The value that a trace returns."""

    success: bool
    result: str = ""
    error: str | None = None
    turns: int = 0
    tools: list[str] = []
    """Tools of the library that were called: NAME@VERSION."""
    made: list[str] = []


@dataclass(frozen=True)
class Stage:
    """The arguments of a stage."""

    t: Tick
    task: Task
    request: Request
    state: State
    """A stage updates it for the next stage."""
    listed: dict[str, Any]
    """The tools of the trace's MCP servers (agents/mcp_tools.py)."""

    def next_stage(self, stage: str) -> Ended:
        """End the tick. The next tick runs `stage`."""
        self.state.stage = stage
        return dialogue.next_tick(self.state)

    def end_trace(self, success: bool, result: str = "", error: str | None = None) -> Ended:
        s = self.state
        end = Result(success=success, result=result, error=error, turns=s.turns, tools=s.used, made=s.made)
        return dialogue.end_trace(end)


def ask(t: Tick, prompt: str, text: str, read: Callable[[str], R]) -> Part[R | None]:
    """Ask the model in a conversation of its own, and parse the answer with `read`.

    If `read` raises ValueError, the model reads the error and answers again. After MAX_ATTEMPTS: returns None.
    """
    first = t.cursor.index
    t.say(BlockType.SYSTEM, prompts.text(prompt))
    t.say(BlockType.USER, text)
    for attempts_left in reversed(range(MAX_ATTEMPTS)):
        message = yield from reply(t, first)
        try:
            return read(message.answer)
        except ValueError as error:
            if attempts_left:
                t.say(BlockType.USER, f"That is not the form that was asked for: {error}. Answer again.")
    return None


def look_up(tool: str, type: type[R], **arguments: Any) -> Part[R | None]:
    """Call a look-up tool and decode its JSON as `type`. Returns None if the tool failed."""
    return decoded((yield LookUp(tool=tool, arguments=arguments)), type)


def decoded(result: LookUpResult, type: type[R]) -> R | None:
    return msgspec.json.decode(result.output, type=type) if result.success else None


def merged(before: Sequence[Found], more: Sequence[Found]) -> list[Found]:
    """The tools of both sequences, one for each name, later ones first."""
    return list({tool.name: tool for tool in (*before, *more)}.values())[::-1]


def status(t: Tick, line: str) -> None:
    """Record a status line for people."""
    t.emit(Note(kind="status", detail=f"toolsmith: {line}"))


def bullets(title: str, lines: Sequence[str]) -> str:
    return f"{title}:\n" + "\n".join(f"- {line}" for line in lines)


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
