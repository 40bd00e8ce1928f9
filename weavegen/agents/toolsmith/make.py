"""The stages that make tools: `signature` chooses how general a tool is, `make` has its code written."""

from collections.abc import Sequence
from typing import Any

import msgspec

from weavegen.agents import dialogue
from weavegen.agents.dialogue import failed, response
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.library import RESERVED_NAMES, Signature, signature_of
from weavegen.agents.toolsmith.lines import Need, read_requests
from weavegen.agents.toolsmith.state import Found, Request, Stage, ToolPlan, ask, look_up, merged, status
from weavegen.kernel import prompts
from weavegen.kernel.selection import UNSCORED, log_odds, mean_score
from weavegen.kernel.steps import Candidate, Delegate, Delegated, Ended, Note, Prompt, Score, ToolSaved, YesNo
from weavegen.kernel.template import split_thoughts
from weavegen.trace.blocks import BlockType

SIGNATURES = 6
"""Signatures that are sampled for one tool."""
MAX_NEIGHBOURS = 4
"""Other requests for which a signature is scored."""
ENOUGH_PAST_REQUESTS = 3
"""If there are fewer similar past requests, the model names likely requests."""
SEARCH = {"generations": 4, "candidates": 4, "islands": 2}
"""Size of the FunSearch for a tool. It is small, because a few programs often satisfy a model's own evaluator."""
DOES_THE_WORK = "Does this function do the work itself, rather than leave it to whoever calls it?"


def signature(now: Stage) -> Part[Ended]:
    """Choose the signature of the next tool. A general signature is preferred, because later requests can use it."""
    state = now.state
    place = next(place for place, plan in enumerate(state.wanted) if not plan.stub)
    need = state.wanted[place].need
    old = yield from look_up("read_tool", dict[str, Any], name=need.name)
    if old:  # a new version keeps the signature, for which test and evaluator are written
        state.wanted[place] = ToolPlan(need, stub=old["source"], old=old)
        state.tools = merged(state.tools, [msgspec.convert(old, Found)])  # used if no better version is found
    else:
        neighbours = yield from neighbouring_requests(now, need)
        state.wanted[place] = yield from most_general(now.t, now.request, need, neighbours)
    return now.next_stage("make" if all(plan.stub for plan in state.wanted) else "signature")


def neighbouring_requests(now: Stage, need: Need) -> Part[list[str]]:
    """Other requests that the tool could serve: past requests, and likely requests if there are few past ones."""
    query = f"{need.name} {need.description} {now.request.objective}"
    past = yield from look_up("past_requests", list[dict[str, Any]], query=query, number=now.task.request)
    requests = [other["objective"] for other in past or () if other["objective"] != now.request.objective]
    if len(requests) < ENOUGH_PAST_REQUESTS:
        text = f"{now.request.text()}\n\nThe function: {need.name}: {need.description}"
        requests += (yield from ask(now.t, "toolsmith_neighbours", text, read_requests)) or []
    return list(dict.fromkeys(requests))[:MAX_NEIGHBOURS]


def most_general(t: Tick, request: Request, need: Need, neighbours: Sequence[str]) -> Part[ToolPlan]:
    """Sample signatures, score how well each serves the request and its neighbours, and take the best signature.

    If the library has another tool of that name, the signature gets the name from `need`.
    """
    status(t, f"decides how general {need.name} is to be")
    first = t.cursor.index
    others = "\n".join(f"- {neighbour}" for neighbour in neighbours) or "(none is known)"
    function = f"The function: {need.name}: {need.description}"
    t.say(BlockType.SYSTEM, prompts.text("toolsmith_signature"))
    t.say(BlockType.USER, f"{request.text()}\n\n{function}\n\nOther requests:\n{others}")
    ordinal, began = t.cursor.ordinal, t.cursor.now
    candidates: list[Candidate] = yield dialogue.sample_messages(t, first, n=SIGNATURES)
    serves = f"Can this function do its part of the request: {in_question(request.objective)}?"
    serves_others = (
        f"Could this function, with other arguments, serve the request: {in_question(neighbour)}?"
        for neighbour in neighbours
    )
    answers: list[list[YesNo]] = yield Score(
        prompt=Prompt(type=BlockType.ASSISTANT, window=(first, t.cursor.index)),
        questions=tuple(dict.fromkeys((serves, DOES_THE_WORK, *serves_others))),
        sample=ordinal,
    )
    written = [signature_in(candidate.text) for candidate in candidates]
    legal = [(generality(answers[n]), n, signature) for n, signature in enumerate(written) if signature is not None]
    if not legal:
        status(t, f"has no signature for {need.name}: it is left to the search")
        bare = Signature(name=need.name, line=f"def {need.name}(value)", description=need.description)
        return ToolPlan(need, stub=bare.stub)
    value, position, best = max(legal, key=lambda scored: scored[0])
    message = dialogue.message_of(t, candidates[position], (ordinal, position), began)
    t.append(msgspec.structs.replace(message, score=mean_score(answers[position])))
    lines = dict.fromkeys(f"{signature.line} {score:+.2f}" for score, _, signature in legal)
    t.emit(Note(kind="signatures", detail="; ".join(lines)))
    if best.name != need.name and (yield from look_up("read_tool", dict[str, Any], name=best.name)):
        line = f"def {need.name}{best.line.removeprefix(f'def {best.name}')}"
        best = Signature(name=need.name, line=line, description=best.description)
    return ToolPlan(Need(best.name, best.description), stub=best.stub, generality=value)


def in_question(objective: str) -> str:
    """A request's objective in a form that fits into a question."""
    return " ".join(objective.split())[:300].rstrip(" .?!")


def generality(answers: Sequence[YesNo]) -> float:
    """The score of a signature: the mean of three log odds. If a question has no answer, it is very low.

    The questions: does it serve the request, does it do the work itself (`run(code)` would serve every request),
    does it serve the neighbours (the mean over them).
    """
    scores = map(log_odds, answers)
    own, work, *others = (UNSCORED if score is None else score for score in scores)
    parts = [own, work, *([sum(others) / len(others)] if others else [])]
    return sum(parts) / len(parts)


def signature_in(text: str) -> Signature | None:
    """The signature in a message, with or without a code block. None: the message has no usable signature."""
    text, _ = split_thoughts(text)
    _, fence, rest = text.partition("```")
    source = rest.partition("\n")[2].partition("```")[0] if fence else text
    try:
        signature = signature_of(source.strip())
    except ValueError:
        return None
    return signature if signature.description and signature.name not in RESERVED_NAMES else None


def make(now: Stage) -> Part[Ended]:
    """Have traces of the agent funsearch make the tools side by side, and put the tools into the library."""
    state = now.state
    status(now.t, f"has {', '.join(plan.need.name for plan in state.wanted)} made")
    results: tuple[Delegated, ...] = yield tuple(
        Delegate(agent="funsearch", task=task_for(plan), label=f"tool {plan.need.name}") for plan in state.wanted
    )
    for plan, delegated in zip(state.wanted, results, strict=True):
        try:
            tool = made_tool(plan, delegated)
        except ValueError as error:
            failure = f"{plan.need.name} could not be made: {error}"
            state.tried.append(failure[:500])
            now.t.say(BlockType.TOOL, response(failed(failure)))
            continue
        now.t.emit(tool)
        now.t.say(BlockType.TOOL, response({"success": True, "output": f"{tool.signature} is in the library now"}))
        state.made.append(tool.name)
        saved = yield from look_up("read_tool", Found, name=tool.name)
        state.tools = merged(state.tools, [] if saved is None else [saved])
    state.wanted = []
    return now.next_stage("execute")


def task_for(plan: ToolPlan) -> dict[str, Any]:
    task = {"name": plan.need.name, "description": plan.need.description, "skeleton": plan.stub} | SEARCH
    return task | {key: text for key in ("tests", "evaluator") if (text := plan.old.get(key))}


def made_tool(plan: ToolPlan, delegated: Delegated) -> ToolSaved:
    """The tool that funsearch returned, also if its search ended early. Raises ValueError if it returned no tool."""
    returned = delegated.returned if isinstance(delegated.returned, dict) else {}
    source = returned.get("source")
    if not isinstance(source, str) or not source.strip():
        raise ValueError(delegated.error or returned.get("error") or "no program was found that works")
    signature = signature_of(source, plan.need.name)
    score, program, trace = returned.get("score"), returned.get("program"), delegated.trace
    return ToolSaved(
        name=signature.name,
        description=plan.need.description,
        signature=signature.line,
        source=source,
        tests=str(returned.get("tests") or ""),
        evaluator=str(returned.get("evaluator") or ""),
        score=float(score) if isinstance(score, int | float) else None,
        generality=plan.generality,
        program=(trace, program) if isinstance(program, int) and trace is not None else None,
    )
