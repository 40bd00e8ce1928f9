"""The stage that carries a request out: think, call tools, read what they say, until `finish`."""

import json
import re
from collections.abc import Sequence
from typing import Any

from weavegen.agents.dialogue import Call, Reply, Tool, failed, reply, response, say, tools_text
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.library import IN_BOX, OWN, TAKEN, call_source, check_name, library_tool
from weavegen.agents.toolsmith.lines import Approach, Need
from weavegen.agents.toolsmith.prepare import MOST_MADE
from weavegen.agents.toolsmith.state import Stage, consult, failures, known, planned, status
from weavegen.kernel import prompts
from weavegen.kernel.steps import AskHuman, Ended, Executed, HumanAnswer, ToolCalled
from weavegen.trace.blocks import BlockType

MOST_TURNS = 50
"""Messages of the model's, where the job's `steps` says nothing else."""
MOST_QUESTIONS = 5
"""That the user is asked."""
MOST_ASKED = 8
"""Questions that a piece of code may ask the model."""
SILENT = 3
"""Messages in a row without a call, after which it is over."""
LONGEST_DONE = 8_000


def execute(now: Stage) -> Part[Ended]:
    """One message of the model's, and the answers to its calls."""
    t, state = now.t, now.state
    tools = [*(library_tool(one.name, one.signature, one.description) for one in state.tools), *IN_BOX, *OWN]
    if state.first is None:
        yield from begin(now, tools)
    elif now.request.revision != state.revision:
        state.revision = now.request.revision
        yield say(BlockType.USER, f"The user has changed the request. From now on it is:\n\n{now.request.text()}")
    assert state.first is not None
    said: Reply = yield from reply(t, state.first, tools)
    state.turns += 1
    state.silent = 0 if said.calls else state.silent + 1
    if state.silent >= SILENT:
        return now.returns(False, said.answer, error="it called no tool any more, and did not finish")
    if not said.calls:
        yield say(BlockType.USER, "Call a tool, or end the work with the tool finish.")
    answers: list[str] = []
    for call in said.calls:
        if call.error is None and call.name == "finish":
            if answers:
                yield say(BlockType.TOOL, "\n".join(answers))
            return now.returns(call.arguments["success"], call.arguments["result"])
        answer = yield from carried_out(now, call)
        answers.append(response(answer))
        if call.name == "create_tool" and answer["success"]:
            yield say(BlockType.TOOL, "\n".join(answers))
            return now.then("choice")
    if answers:
        yield say(BlockType.TOOL, "\n".join(answers))
    if state.turns >= (MOST_TURNS if t.settings.steps is None else t.settings.steps):
        return now.returns(False, error=f"it reached its limit of {state.turns} steps")
    return now.then("execute")


def begin(now: Stage, tools: Sequence[Tool]) -> Part[None]:
    """A conversation of its own: it is told what was found out before, and does not read how."""
    state = now.state
    yield status("carries it out with " + (", ".join(tool.name for tool in state.tools) or "Python alone"))
    state.first, state.revision, state.silent = now.t.cursor.index, now.request.revision, 0
    yield say(BlockType.SYSTEM, prompts.text("toolsmith_execute").replace("{tools}", tools_text(tools)))
    told = [now.request.text(), known(state), planned(state), *failures(state)]
    if state.done:
        told.append(f"What you have found out already:\n{state.done}")
    yield say(BlockType.USER, "\n\n".join(told))


def carried_out(now: Stage, call: Call) -> Part[dict[str, Any]]:
    """What came of a call, as the model reads it."""
    t, state = now.t, now.state
    if call.error is not None:
        return failed(call.error)
    if call.name == "create_tool":
        return new_tool(now, **call.arguments)
    if call.name == "ask_user":
        return (yield from asked_user(now, call.arguments["question"]))
    if call.name == "ask_model":
        return {"success": True, "output": (yield from asked_model(t, call.arguments["question"]))}
    if call.name in {tool.name for tool in state.tools}:
        return (yield from library_call(now, call))
    if call.name == "python" and "ask_model(" in call.arguments["code"]:
        return (yield from chain_of_code(t, call.arguments["code"]))
    return (yield from in_box(t, call.name, call.arguments))


def new_tool(now: Stage, name: str, description: str, done: str) -> dict[str, Any]:
    """Have a tool looked for, or made: the plan becomes that it be there. What create_tool answers."""
    state = now.state
    if len(state.made) >= MOST_MADE:
        return failed(f"{MOST_MADE} tools were made for this request: go on with what there is")
    try:
        check_name(name)
    except ValueError as error:
        return failed(str(error))
    if name in TAKEN:
        return failed(f"there is a tool {name} already: give another name")
    if not description.strip():
        return failed("the description is empty: say what it takes and what it returns")
    state.plan = [Approach(f"Go on with {name}.", (Need(name, " ".join(description.split())),))]
    state.done, state.first = done[:LONGEST_DONE], None
    return {"success": True, "output": "It is looked for, or made. You begin anew with it."}


def asked_user(now: Stage, question: str) -> Part[dict[str, Any]]:
    """What the user says."""
    if now.task.request is None:
        return failed("nobody can be asked: decide yourself, and say so in the result")
    if now.state.questions >= MOST_QUESTIONS:
        return failed(f"the user was asked {MOST_QUESTIONS} times: decide yourself, and say so in the result")
    if not question.strip():
        return failed("the question is empty")
    now.state.questions += 1
    heard: HumanAnswer = yield AskHuman(question=question)
    return {"success": True, "output": heard.text}


def asked_model(t: Tick, question: str) -> Part[str]:
    """What the model says to a question, of which it reads nothing else.

    Question and answer are messages like others, so that people can read them and models learn from them.
    """
    first = t.cursor.index
    yield say(BlockType.USER, question)
    said: Reply = yield from reply(t, first)
    return said.answer


def chain_of_code(t: Tick, code: str) -> Part[dict[str, Any]]:
    """Run code some of whose steps the model answers, after Chain of Code (Li et al. 2023): `ask_model(question)`.

    At a question that has no answer yet the code ends; it is asked, and the code runs again from its beginning,
    with all answers so far. So no live process waits for a model.
    """
    answers: dict[str, str] = {}
    while True:
        yield from in_box(t, "python", {"code": ASK.replace("ANSWERS", repr(json.dumps(answers)))})
        answer = yield from in_box(t, "python", {"code": code})
        asked = UNANSWERED.search(answer.get("error") or "")
        if asked is None:
            return answer
        if len(answers) >= MOST_ASKED:
            return failed(f"the code has asked {MOST_ASKED} questions: ask several things at a time")
        question = json.loads(asked[1])
        answers[question] = yield from asked_model(t, question)


ASK = """import json
class AskModel(RuntimeError): pass
def ask_model(question, answers=json.loads(ANSWERS)):
    question = str(question)
    if question in answers: return answers[question]
    raise AskModel(json.dumps(question))
"""
UNANSWERED = re.compile(r'AskModel: ("(?:[^"\\\n]|\\.)*") \(line \d+\)\Z')
"""The end of the error of code that met a question without an answer (box/calls.py: python)."""


def library_call(now: Stage, call: Call) -> Part[dict[str, Any]]:
    """Execute the newest version of a tool in the box, and count it."""
    read: dict[str, Any] = yield from consult("read_tool", dict[str, Any], {}, name=call.name)
    if not read:
        return failed(f"{call.name} is no longer in the library")
    code = call_source(read["source"], call.name, call.arguments)
    answer = yield from in_box(now.t, "python", {"code": code})
    yield ToolCalled(name=call.name, version=read["version"], success=answer["success"])
    now.state.used = sorted({*now.state.used, f"{call.name}@{read['version']}"})
    return answer


def in_box(t: Tick, name: str, arguments: dict[str, Any]) -> Part[dict[str, Any]]:
    """What a function of box/calls.py answers."""
    executed: Executed = yield t.execute("call", source=json.dumps({"name": name, "arguments": arguments}))
    if executed.error is not None:
        return failed(f"{executed.error.type}: {executed.error.message}")
    value: dict[str, Any] = executed.value
    return value
