"""The stages that make a tool: how general it is to be, and the search for its code."""

from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.agents import dialogue
from weavegen.agents.dialogue import failed, response, say
from weavegen.agents.program import Part, Tick
from weavegen.agents.sampling import corrected_score
from weavegen.agents.toolsmith.library import TAKEN, Signature, signature_of
from weavegen.agents.toolsmith.lines import Need, read_requests
from weavegen.agents.toolsmith.state import (
    Found,
    Past,
    Request,
    Stage,
    ToolPlan,
    answered,
    consult,
    merged,
    status,
)
from weavegen.kernel import prompts
from weavegen.kernel.selection import log_odds
from weavegen.kernel.steps import Candidate, Delegate, Delegated, Ended, Note, Prompt, Score, ToolSaved, YesNo
from weavegen.trace.blocks import BlockType

SIGNATURES = 6
"""Of a tool to be made, sampled to choose from."""
NEIGHBOURS = 4
"""Requests that a signature is judged by, beside its own, at most."""
ENOUGH = 3
"""Earlier requests of that kind; with fewer the model names likely ones."""
SEARCH = {"generations": 4, "candidates": 4, "islands": 2}
"""How long a tool is searched for. What the model tests and scores itself has soon nothing left to win."""
ITSELF = "Does this function do the work itself, rather than leave it to whoever calls it?"


def signature(now: Stage) -> Part[Ended]:
    """Choose how general the next tool to be made is: by whether it would serve other requests, too."""
    state = now.state
    at = next(place for place, one in enumerate(state.wanted) if not one.stub)
    need = state.wanted[at].need
    old: dict[str, Any] = yield from consult("read_tool", dict[str, Any], {}, name=need.name)
    if old:  # others call it as it is, so a better version keeps the signature
        state.wanted[at] = ToolPlan(need, stub=old["source"], old=old)
        state.tools = merged(state.tools, [msgspec.convert(old, Found)])  # in case that none better is found
    else:
        neighbours = yield from neighbouring(now, need)
        state.wanted[at] = yield from most_general(now.t, now.request, need, neighbours)
    return now.then("make" if all(one.stub for one in state.wanted) else "signature")


def neighbouring(now: Stage, need: Need) -> Part[list[str]]:
    """Requests that a tool could serve as well: earlier ones, and where there are few, likely ones."""
    query, none = f"{need.name} {need.description} {now.request.objective}", list[Past]()
    past = yield from consult("past_requests", list[Past], none, query=query, number=now.task.request)
    found = [one.objective for one in past if one.objective != now.request.objective]
    if len(found) < ENOUGH:
        told = f"{now.request.text()}\n\nThe function: {need.name}: {need.description}"
        found += (yield from answered(now.t, "toolsmith_neighbours", told, read_requests)) or []
    return list(dict.fromkeys(found))[:NEIGHBOURS]


def most_general(t: Tick, request: Request, need: Need, neighbours: Sequence[str]) -> Part[ToolPlan]:
    """Sample signatures, ask about each whether it serves the request and its neighbours, and take the best.

    A name that the library has already is not taken: it is another tool's.
    """
    yield status(f"decides how general {need.name} is to be")
    first = t.cursor.index
    listed = "\n".join(f"- {one}" for one in neighbours) or "(none is known)"
    yield say(BlockType.SYSTEM, prompts.text("toolsmith_signature"))
    yield say(
        BlockType.USER,
        f"{request.text()}\n\nThe function: {need.name}: {need.description}\n\nOther requests:\n{listed}",
    )
    ordinal, began = t.cursor.ordinal, t.cursor.now
    sampled: list[Candidate] = yield dialogue.message(t, first, n=SIGNATURES)
    served = f"Can this function do its part of the request: {subject(request.objective)}?"
    others = [
        f"Could this function, with other arguments, serve the request: {one}?" for one in map(subject, neighbours)
    ]
    answers: list[list[YesNo]] = yield Score(
        prompt=Prompt(type=BlockType.ASSISTANT, window=(first, t.cursor.index)),
        questions=tuple(dict.fromkeys((served, ITSELF, *others))),
        sample=ordinal,
    )
    best: tuple[float, int, Signature] | None = None
    lines = []
    for position, (candidate, given) in enumerate(zip(sampled, answers, strict=True)):
        written = signature_in(candidate.text)
        if written is None:
            continue
        value = worth(given)
        lines.append(f"{written.line} {value:+.2f}")
        if best is None or value > best[0]:
            best = value, position, written
    if best is None:
        yield status(f"has no signature for {need.name}: it is left to the search")
        bare = Signature(name=need.name, line=f"def {need.name}(value)", description=need.description)
        return ToolPlan(need, stub=bare.stub)
    value, position, written = best
    chosen = dialogue.taken(t, sampled[position], (ordinal, position), began)
    yield msgspec.structs.replace(chosen, score=corrected_score(answers[position], ()))
    yield Note(kind="signatures", detail="; ".join(dict.fromkeys(lines)))
    if written.name != need.name and (yield from consult("read_tool", dict[str, Any], {}, name=written.name)):
        line = f"def {need.name}{written.line.removeprefix(f'def {written.name}')}"
        written = Signature(name=need.name, line=line, description=written.description)
    return ToolPlan(Need(written.name, written.description), stub=written.stub, generality=value)


def subject(objective: str) -> str:
    """A request's objective as a part of a question."""
    return " ".join(objective.split())[:300].rstrip(" .?!")


def worth(answers: Sequence[YesNo]) -> float:
    """Of a signature, by the answers whether it serves the request, works itself, serves each of the neighbours.

    The mean of three log odds, of which the neighbours' mean is one; a question without an answer counts 0.
    Whether it works itself is asked because `run(code)` would serve everybody.
    """
    own, itself, *others = (log_odds(one) or 0.0 for one in answers)
    parts = [own, itself, *([sum(others) / len(others)] if others else [])]
    return sum(parts) / len(parts)


def signature_in(text: str) -> Signature | None:
    """The signature that a message holds, in a code block or bare; None: there is none that can be used."""
    text = dialogue.THOUGHT.sub("", text)
    _, fence, rest = text.partition("```")
    source = rest.partition("\n")[2].partition("```")[0] if fence else text
    try:
        found = signature_of(source.strip())
    except ValueError:
        return None
    return found if found.description and found.name not in TAKEN else None


def make(now: Stage) -> Part[Ended]:
    """Have the tools made, side by side, and put them into the library."""
    state = now.state
    yield status(f"has {', '.join(one.need.name for one in state.wanted)} made")
    came: tuple[Delegated, ...] = yield tuple(
        Delegate(agent="funsearch", task=task_for(one), label=f"tool {one.need.name}") for one in state.wanted
    )
    for one, delegated in zip(state.wanted, came, strict=True):
        try:
            made = made_of(one, delegated)
        except ValueError as error:
            complaint = f"{one.need.name} could not be made: {error}"
            state.tried.append(complaint[:500])
            yield say(BlockType.TOOL, response(failed(complaint)))
            continue
        yield made
        yield say(BlockType.TOOL, response({"success": True, "output": f"{made.signature} is in the library now"}))
        state.made.append(made.name)
        none: Found | None = None
        found = yield from consult("read_tool", Found, none, name=made.name)
        state.tools = merged(state.tools, [] if found is None else [found])
    state.wanted = []
    return now.then("execute")


def task_for(wanted: ToolPlan) -> dict[str, Any]:
    """What funsearch is given."""
    task = {"name": wanted.need.name, "description": wanted.need.description, "skeleton": wanted.stub} | SEARCH
    return task | {key: text for key in ("tests", "evaluator") if (text := wanted.old.get(key))}


def made_of(wanted: ToolPlan, delegated: Delegated) -> ToolSaved:
    """The tool that was made. Raises ValueError where none was."""
    returned = delegated.returned if isinstance(delegated.returned, dict) else {}
    source = returned.get("source")
    if delegated.error is not None or not isinstance(source, str) or not source.strip():
        raise ValueError(delegated.error or returned.get("error") or "no program was found that works")
    found = signature_of(source, wanted.need.name)
    score, program = returned.get("score"), returned.get("program")
    return ToolSaved(
        name=found.name,
        description=wanted.need.description,
        signature=found.line,
        source=source,
        tests=str(returned.get("tests") or ""),
        evaluator=str(returned.get("evaluator") or ""),
        score=float(score) if isinstance(score, int | float) else None,
        generality=wanted.generality,
        program=(delegated.trace, program) if isinstance(program, int) else None,
    )
