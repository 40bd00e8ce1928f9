"""What the toolsmith's stages are given, hand on and return, and what they do in the same way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from weavegen.agents.dialogue import Reply, reply, say
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.lines import Approach, Need
from weavegen.kernel import prompts
from weavegen.kernel.steps import Ended, LookUp, LookUpResult, Note
from weavegen.trace.blocks import BlockType

R = TypeVar("R")
TRIES = 3
"""Answers of the wrong form that a stage takes before it goes on without."""


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What it is given."""

    task: str
    """The objective."""
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    user: str = ""
    request: int | None = None
    """Number of the request, which may change while it works; None: it is what stands here, and nobody's."""


class Request(msgspec.Struct, frozen=True):
    """What is asked for now."""

    objective: str
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    revision: int = 0

    def text(self) -> str:
        """As the model reads it."""
        parts = [f"The request:\n{self.objective}"]
        for title, lines in (("Requirements", self.requirements), ("Constraints", self.constraints)):
            if lines:
                parts.append(f"{title}:\n" + "\n".join(f"- {line}" for line in lines))
        return "\n\n".join(parts)


class Found(msgspec.Struct, frozen=True):
    """A tool of the library, as `find_tools` and `read_tool` tell of it."""

    name: str
    description: str
    signature: str
    version: int
    uses: int = 0
    successes: int = 0

    def line(self) -> str:
        """As the model reads it."""
        used = f"called {self.uses} times, {self.successes} of them with success" if self.uses else "not used yet"
        return f"{self.signature}\n    {' '.join(self.description.split())}\n    ({used})"


class Past(msgspec.Struct, frozen=True):
    """Another request, as `past_requests` tells of it."""

    number: int
    objective: str
    status: str
    outcome: str
    tools: tuple[str, ...] = ()


class ToolPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool to be made."""

    need: Need
    stub: str = ""
    """Source of its signature and docstring; empty: not decided yet."""
    generality: float | None = None
    old: dict[str, Any] = {}
    """Source, tests and evaluator of the version that it is to be better than."""


class State(msgspec.Struct, omit_defaults=True):
    """What one tick tells the next."""

    stage: str = "queries"
    queries: dict[str, list[str]] = {}
    context: str = ""
    """What the summary says."""
    plan: list[Approach] = []
    rounds: int = 0
    """Plans so far."""
    tried: list[str] = []
    """What came to nothing."""
    tools: list[Found] = []
    """Of the library, that the execution has."""
    wanted: list[ToolPlan] = []
    made: list[str] = []
    used: list[str] = []
    """NAME@VERSION."""
    done: str = ""
    """What an execution had found out before it asked for another tool."""
    first: int | None = None
    """Of the execution's blocks; None: it has not begun."""
    revision: int = 0
    """Of the request, as the execution has read it."""
    turns: int = 0
    silent: int = 0
    """Messages in a row without a call."""
    questions: int = 0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace returns."""

    success: bool
    result: str = ""
    error: str | None = None
    turns: int = 0
    tools: list[str] = []
    """Of the library, that were called: NAME@VERSION."""
    made: list[str] = []
    """Those that were made for it."""


@dataclass(frozen=True)
class Stage:
    """What each stage is given."""

    t: Tick
    task: Task
    request: Request
    state: State
    """The stage changes it for the next one."""

    def then(self, stage: str) -> Ended:
        """End the tick."""
        self.state.stage = stage
        return Ended(done=False, state=msgspec.to_builtins(self.state))

    def returns(self, success: bool, result: str = "", error: str | None = None) -> Ended:
        """End the trace."""
        state = self.state
        returned = Result(
            success=success, result=result, error=error, turns=state.turns, tools=state.used, made=state.made
        )
        return Ended(done=True, returned=msgspec.to_builtins(returned))


def answered(t: Tick, prompt: str, told: str, read: Callable[[str], R]) -> Part[R | None]:
    """What the model answers in a conversation of its own, as `read` understands it.

    Where that raises ValueError the model is told, and answers again; None: it never came to the right form.
    """
    first = t.cursor.index
    yield say(BlockType.SYSTEM, prompts.text(prompt))
    yield say(BlockType.USER, told)
    for left in reversed(range(TRIES)):
        said: Reply = yield from reply(t, first)
        try:
            return read(said.answer)
        except ValueError as error:
            if left:
                yield say(BlockType.USER, f"That is not the form that was asked for: {error}. Answer again.")
    return None


def consult(tool: str, type: Any, otherwise: R, **arguments: Any) -> Part[R]:
    """What a tool that only reads answers, from JSON; `otherwise` where it failed."""
    one: LookUpResult = yield LookUp(tool=tool, arguments=arguments)
    found: R = decoded(one, type, otherwise)
    return found


def decoded(one: LookUpResult, type: Any, otherwise: Any) -> Any:
    return msgspec.json.decode(one.output, type=type) if one.success else otherwise


def merged(before: Sequence[Found], more: Sequence[Found]) -> list[Found]:
    """The later ones first, each name once."""
    return list({tool.name: tool for tool in (*before, *more)}.values())[::-1]


def status(line: str) -> Note:
    """A line that tells people where it is."""
    return Note(kind="status", detail=f"toolsmith: {line}")


def known(state: State) -> str:
    """What the summary found out, for the model."""
    return f"What is known:\n{state.context or '(nothing)'}"


def planned(state: State) -> str:
    """The plan, for the model."""
    lines = [
        f"- {one.text}" + "".join(f"\n  with {need.name}: {need.description}" for need in one.needs)
        for one in state.plan
    ]
    return "The plan:\n" + "\n".join(lines)


def failures(state: State) -> list[str]:
    """What came to nothing, for the model: one text or none."""
    return ["What came to nothing:\n" + "\n".join(f"- {line}" for line in state.tried)] if state.tried else []


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
