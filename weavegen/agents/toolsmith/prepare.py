"""The stages before anything is made or done: what to look for, what was found, a plan, a choice of tools."""

from typing import Any

from weavegen.agents.program import Part
from weavegen.agents.toolsmith.library import TAKEN
from weavegen.agents.toolsmith.lines import Approach, Choice, read_choice, read_plan, read_queries
from weavegen.agents.toolsmith.state import (
    Found,
    Stage,
    ToolPlan,
    answered,
    decoded,
    failures,
    known,
    merged,
    planned,
    shortened,
    status,
)
from weavegen.kernel.steps import Ended, LookUp, LookUpResult

ROUNDS = 3
"""Plans that are looked up in the library."""
MOST_MADE = 3
"""Tools that are made for one request."""
MOST_FOUND = 2_000
"""Characters of what one query found that the summary reads."""
LONGEST_SUMMARY = 4_000


def queries(now: Stage) -> Part[Ended]:
    """Have the model write what to look for."""
    yield status("writes what to look for")
    found = yield from answered(now.t, "toolsmith_queries", now.request.text(), read_queries)
    now.state.queries = found or {name: [now.request.objective] for name in ("data", "outcome", "preference")}
    return now.then("summary")


def summary(now: Stage) -> Part[Ended]:
    """Look it up, and have the model sum up what was found."""
    yield status("looks up data, outcomes and preferences")
    lookups = [
        (f"{collection}: {query}", lookup(now, collection, query))
        for collection, found in now.state.queries.items()
        for query in found
    ]
    answers: tuple[LookUpResult, ...] = yield tuple(step for _, step in lookups)
    told, seen = [now.request.text(), "What was found:"], set[str]()
    for (title, _), one in zip(lookups, answers, strict=True):
        text = one.output if one.success else f"(this could not be looked up: {one.output})"
        text = "" if text == "[]" else shortened(text, MOST_FOUND)
        told.append(f"## {title}\n{'(the same)' if text in seen else text or '(nothing)'}")
        seen |= {text} - {""}
    said = yield from answered(now.t, "toolsmith_summary", "\n\n".join(told), something)
    now.state.context = shortened(said or "", LONGEST_SUMMARY)
    return now.then("plan")


def lookup(now: Stage, collection: str, query: str) -> LookUp:
    """The step that searches a collection."""
    if collection == "data":
        return LookUp(tool="search_corpus", arguments={"query": query, "limit": 3})
    arguments: dict[str, Any] = {"query": query, "number": now.task.request}
    if collection == "outcome":
        return LookUp(tool="past_requests", arguments=arguments | {"limit": 3})
    return LookUp(tool="preferences", arguments=arguments | {"user": now.task.user})


def plan(now: Stage) -> Part[Ended]:
    """Have the model write approaches, and which tools they would need, without telling it what there is."""
    state = now.state
    state.rounds += 1
    yield status(f"plans, round {state.rounds} of {ROUNDS} at most")
    told = [now.request.text(), known(state), *failures(state)]
    if state.done:
        told.append(f"What was found out already:\n{state.done}")
    found = yield from answered(now.t, "toolsmith_plan", "\n\n".join(told), read_plan)
    state.plan = found or [Approach(now.request.objective)]
    return now.then("choice")


def choice(now: Stage) -> Part[Ended]:
    """Look for the plan's tools in the library, and have the model decide."""
    state = now.state
    needs = list({need.name: need for approach in state.plan for need in approach.needs}.values())
    yield status(f"looks for {', '.join(need.name for need in needs) or 'tools'} in the library")
    asked = [now.request.objective, *(f"{need.name} {need.description}" for need in needs)]
    answers: tuple[LookUpResult, ...] = yield tuple(
        LookUp(tool="find_tools", arguments={"query": query, "limit": 4}) for query in asked
    )
    found: dict[str, Found] = {}
    for one in answers:
        found |= {tool.name: tool for tool in decoded(one, list[Found], [])}
    listed = "\n\n".join(tool.line() for tool in found.values()) or "(nothing)"
    told = [now.request.text(), known(state), planned(state), f"Found in the library:\n{listed}"]
    last = state.rounds >= ROUNDS
    if last:
        told.append("This was the last plan: decide without another.")
    decided = yield from answered(
        now.t, "toolsmith_choice", "\n\n".join(told), lambda text: read_choice(text, found, TAKEN, replan=not last)
    )
    decided = decided or Choice()
    if decided.replan:
        state.tried.append(decided.replan[:500])
        return now.then("plan")
    state.tools = merged(state.tools, [found[name] for name in decided.use])
    state.wanted = [ToolPlan(need) for need in decided.create][: max(MOST_MADE - len(state.made), 0)]
    what = [*(f"use {name}" for name in decided.use), *(f"make {one.need.name}" for one in state.wanted)]
    yield status("decides: " + (", ".join(what) or "no tool of the library"))
    return now.then("signature" if state.wanted else "execute")


def something(text: str) -> str:
    """A text that is not empty. Raises ValueError."""
    if not text:
        raise ValueError("it is empty")
    return text
