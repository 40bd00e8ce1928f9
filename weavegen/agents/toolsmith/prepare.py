"""The first stages: write queries, summarise the hits, write a plan, choose tools."""

from functools import partial
from typing import Any

from weavegen.agents.program import Part
from weavegen.agents.toolsmith.library import RESERVED_NAMES
from weavegen.agents.toolsmith.lines import COLLECTIONS, Approach, Choice, read_choice, read_plan, read_queries
from weavegen.agents.toolsmith.state import Found, Stage, ToolPlan, ask, decoded, merged, shortened, status
from weavegen.kernel.steps import Ended, LookUp, LookUpResult

MAX_PLANS = 3
MAX_TOOLS_MADE = 3
"""Tools that are made for one request."""
MAX_HIT_CHARS = 2_000
"""Characters of one query's hits that the stage `summary` reads."""
MAX_SUMMARY_CHARS = 4_000


def queries(now: Stage) -> Part[Ended]:
    """Have the model write queries."""
    status(now.t, "writes what to look for")
    written = yield from ask(now.t, "toolsmith_queries", now.request.text(), read_queries)
    now.state.queries = written or {name: [now.request.objective] for name in COLLECTIONS}
    return now.next_stage("summary")


def summary(now: Stage) -> Part[Ended]:
    """Run the queries, and have the model summarise the hits."""
    status(now.t, "looks up data, outcomes and preferences")
    searches = [(name, query) for name, texts in now.state.queries.items() for query in texts]
    results: tuple[LookUpResult, ...] = yield tuple(search(now, name, query) for name, query in searches)
    parts, seen = [now.request.text(), "What was found:"], set[str]()
    for (name, query), result in zip(searches, results, strict=True):
        text = result.output if result.success else f"(this could not be looked up: {result.output})"
        text = "" if text == "[]" else shortened(text, MAX_HIT_CHARS)
        parts.append(f"## {name}: {query}\n{'(the same)' if text in seen else text or '(nothing)'}")
        seen |= {text} - {""}
    answer = yield from ask(now.t, "toolsmith_summary", "\n\n".join(parts), not_empty)
    now.state.context = shortened(answer or "", MAX_SUMMARY_CHARS)
    return now.next_stage("plan")


def search(now: Stage, collection: str, query: str) -> LookUp:
    """The step that searches a collection."""
    if collection == "data":
        return LookUp(tool="search_corpus", arguments={"query": query, "limit": 3})
    arguments: dict[str, Any] = {"query": query, "number": now.task.request}
    if collection == "outcome":
        return LookUp(tool="past_requests", arguments=arguments | {"limit": 3})
    return LookUp(tool="preferences", arguments=arguments | {"user": now.task.user})


def plan(now: Stage) -> Part[Ended]:
    """Have the model write approaches and the tools that they need. The model does not read the library."""
    state = now.state
    state.rounds += 1
    status(now.t, f"plans, round {state.rounds} of {MAX_PLANS} at most")
    done = [f"What was found out already:\n{state.done}"] if state.done else []
    parts = [now.request.text(), state.context_text(), *state.failure_text(), *done]
    approaches = yield from ask(now.t, "toolsmith_plan", "\n\n".join(parts), read_plan)
    state.plan = approaches or [Approach(now.request.objective)]
    return now.next_stage("choice")


def choice(now: Stage) -> Part[Ended]:
    """Search the library for the plan's tools, and have the model choose tools to use and tools to make."""
    state = now.state
    needs = list({need.name: need for approach in state.plan for need in approach.needs}.values())
    status(now.t, f"looks for {', '.join(need.name for need in needs) or 'tools'} in the library")
    texts = [now.request.objective, *(f"{need.name} {need.description}" for need in needs)]
    results: tuple[LookUpResult, ...] = yield tuple(
        LookUp(tool="find_tools", arguments={"query": text, "limit": 4}) for text in texts
    )
    library: dict[str, Found] = {tool.name: tool for r in results for tool in decoded(r, list[Found]) or ()}
    listed = "\n\n".join(tool.text() for tool in library.values()) or "(nothing)"
    parts = [now.request.text(), state.context_text(), state.plan_text(), f"Found in the library:\n{listed}"]
    last = state.rounds >= MAX_PLANS
    if last:
        parts.append("This was the last plan: decide without another.")
    read = partial(read_choice, library=library, reserved=RESERVED_NAMES, replan=not last)
    decision = (yield from ask(now.t, "toolsmith_choice", "\n\n".join(parts), read)) or Choice()
    if decision.replan:
        state.tried.append(decision.replan[:500])
        return now.next_stage("plan")
    state.tools = merged(state.tools, [library[name] for name in decision.use])
    state.wanted = [ToolPlan(need) for need in decision.create][: max(MAX_TOOLS_MADE - len(state.made), 0)]
    decisions = [f"use {name}" for name in decision.use] + [f"make {tool.need.name}" for tool in state.wanted]
    status(now.t, f"decides: {', '.join(decisions) or 'no tool of the library'}")
    return now.next_stage("signature" if state.wanted else "execute")


def not_empty(text: str) -> str:
    """The text. Raises ValueError if it is empty."""
    if not text:
        raise ValueError("it is empty")
    return text
