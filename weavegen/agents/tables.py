"""The texts that weavegen itself writes into a trace: genesis, problem map, outcome table."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from weavegen.kernel.steps import Delegate, Delegated, Evaluated, Executed, SubagentState

MAX_VALUE_CHARS = 2000
"""Characters of a value in a table. Longer values are cut."""


@cache
def genesis() -> str:
    """The file that implements the agent's API: the model reads the code that runs its blocks."""
    return (Path(__file__).parents[1] / "box" / "api.py").read_text()


def problem_map(subagents: Sequence[SubagentState]) -> str:
    """Every subagent's task and state, nested by parent; without times, so that equal seeds give equal bodies."""
    children: dict[str | None, list[SubagentState]] = {}
    for subagent in subagents:
        children.setdefault(subagent.parent, []).append(subagent)
    return "\n".join(["Problem map:", *_branch(children, None, "")])


def _branch(children: dict[str | None, list[SubagentState]], parent: str | None, indent: str) -> Iterable[str]:
    for subagent in children.get(parent, []):
        state = "completed" if subagent.completed else "in progress"
        yield f"{indent}- {subagent.name}: {state}, time budget {subagent.time_budget:g} minutes"
        for line in subagent.description.strip().split("\n"):
            yield f"{indent}    {line}"
        yield f"{indent}  returns: {_short(subagent.schema)}"
        for evaluated in subagent.evaluations:
            yield f"{indent}  {evaluated.title} {_verdict(evaluated)}"
        if subagent.completed:
            yield f"{indent}  returned: {_short(subagent.returned)}"
        yield from _branch(children, subagent.name, indent + "  ")


def outcome_table(action: Executed | None, evaluations: Sequence[Evaluated]) -> str:
    """The action's and every evaluation's title and result."""
    if action is None:
        done = "action | none ran in this tick | ERROR"
    else:
        title = action.registered[0] if action.registered else "action"
        done = f"action | {title} | {_short(action.value)}"
    return "\n".join(["Outcome:", done, *evaluation_rows(evaluations)])


def evaluation_rows(evaluations: Sequence[Evaluated]) -> list[str]:
    """A row for each evaluation: its scope, title and result."""
    return [f"{done.scope} evaluation | {done.title} | {_verdict(done)}" for done in evaluations]


def subagent_result(subagent: SubagentState) -> str:
    if not subagent.completed:
        return f"{subagent.name} ran out of its {subagent.time_budget:g} minutes and returned nothing."
    return f"{subagent.name} returned:\n{_short(subagent.returned)}"


def delegated_results(delegates: Sequence[Delegate], results: Sequence[Delegated]) -> str:
    rows = []
    for delegate, result in zip(delegates, results, strict=True):
        answer = f" nothing: {result.error}" if result.returned is None else f":\n{_short(result.returned)}"
        rows.append(f"{delegate.agent} ({delegate.label}) returned{answer}")
    return "\n".join(rows)


def _verdict(evaluated: Evaluated) -> str:
    return "ERROR" if evaluated.error is not None else _short(evaluated.value)


def _short(value: object) -> str:
    text = str(value) if isinstance(value, str | bool) else msgspec.json.encode(value).decode()
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "..."
