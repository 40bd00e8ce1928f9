"""The last stage, which carries out the request: the model calls tools until it calls `finish`."""

import json
import re
from collections.abc import Sequence
from typing import Any

from weavegen.agents import dialogue, mcp_tools
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.library import OWN_TOOLS, RESERVED_NAMES, call_source, check_name, library_tool
from weavegen.agents.toolsmith.lines import Approach, Need
from weavegen.agents.toolsmith.prepare import MAX_TOOLS_MADE
from weavegen.agents.toolsmith.state import Stage, look_up, status
from weavegen.kernel import prompts
from weavegen.kernel.steps import AskHuman, Ended, HumanAnswer, ToolCalled
from weavegen.trace.blocks import BlockType

MAX_TURNS = 50
"""Default of the setting `steps`: messages that the model writes in this stage."""
MAX_USER_QUESTIONS = 5
"""Questions that the user is asked for one request."""
MAX_MODEL_QUESTIONS = 8
"""Questions that one piece of code may ask the model."""
MAX_SILENT_TURNS = 3
"""After this many messages in a row without a call the trace ends."""
MAX_DONE_CHARS = 8_000
"""Characters that are kept of the argument `done` of `create_tool`."""


def execute(now: Stage) -> Part[Ended]:
    """Have the model write one message, and answer its calls."""
    t, state = now.t, now.state
    library = [library_tool(tool.name, tool.signature, tool.description) for tool in state.tools]
    tools = [*library, *dialogue.BOX_TOOLS, dialogue.RESEARCH, *OWN_TOOLS, *mcp_tools.tools_in(now.listed)]
    if state.first is None:
        begin(now, tools)
    elif now.request.revision != state.revision:
        state.revision = now.request.revision
        t.say(BlockType.USER, f"The user has changed the request. From now on it is:\n\n{now.request.text()}")
    assert state.first is not None
    message = yield from dialogue.reply(t, state.first, tools)
    state.turns += 1
    state.silent = 0 if message.calls else state.silent + 1
    if state.silent >= MAX_SILENT_TURNS:
        error = f"the model wrote {MAX_SILENT_TURNS} messages without a call, and did not finish"
        return now.end_trace(False, message.answer, error=error)
    if not message.calls:
        t.say(BlockType.USER, "Call a tool, or end the work with the tool finish.")
    answers: list[str] = []
    end: Ended | None = None
    for call in message.calls:
        if call.error is None and call.name == "finish":
            end = now.end_trace(call.arguments["success"], call.arguments["result"])
            break
        answer = yield from answer_call(now, call, tools)
        answers.append(dialogue.response(answer))
        if call.name == "create_tool" and answer["success"]:
            end = now.next_stage("choice")
            break
    if answers:
        t.say(BlockType.TOOL, "\n".join(answers))
    if end is not None:
        return end
    if state.turns >= (MAX_TURNS if t.settings.steps is None else t.settings.steps):
        return now.end_trace(False, error=f"the model reached its limit of {state.turns} steps")
    return now.next_stage("execute")


def begin(now: Stage, tools: Sequence[dialogue.Tool]) -> None:
    """Begin the stage's conversation. The model reads the results of the earlier stages."""
    state = now.state
    status(now.t, "carries it out with " + (", ".join(tool.name for tool in state.tools) or "Python alone"))
    state.first, state.revision, state.silent = now.t.cursor.index, now.request.revision, 0
    dialogue.say_system(now.t, prompts.text("toolsmith_execute"), tools, mcp_tools.unusable(now.listed))
    done = [f"What you have found out already:\n{state.done}"] if state.done else []
    texts = [now.request.text(), state.context_text(), state.plan_text(), *state.failure_text(), *done]
    now.t.say(BlockType.USER, "\n\n".join(texts))


def answer_call(now: Stage, call: dialogue.Call, tools: Sequence[dialogue.Tool]) -> Part[dict[str, Any]]:
    """Make a call. Returns the answer for the model."""
    t, arguments = now.t, call.arguments
    if call.error is not None:
        return dialogue.failed(call.error)
    if call.name == "create_tool":
        return create_tool(now, **arguments)
    if call.name == "ask_user":
        return (yield from ask_user(now, arguments["question"]))
    if call.name == "ask_model":
        return {"success": True, "output": (yield from ask_model(t, arguments["question"]))}
    if call.name in {tool.name for tool in now.state.tools}:
        return (yield from call_library(now, call))
    if call.name == "python" and "ask_model(" in arguments["code"]:
        return (yield from chain_of_code(t, arguments["code"]))
    return (yield from dialogue.answer_call(t, call, tools))


def create_tool(now: Stage, name: str, description: str, done: str) -> dict[str, Any]:
    """Replace the plan by a plan that needs this tool, so that the stage `choice` finds or orders it."""
    state = now.state
    if len(state.made) >= MAX_TOOLS_MADE:
        return dialogue.failed(f"{MAX_TOOLS_MADE} tools were made for this request: go on with what there is")
    try:
        check_name(name)
    except ValueError as error:
        return dialogue.failed(str(error))
    if name in RESERVED_NAMES:
        return dialogue.failed(f"there is a tool {name} already: give another name")
    if not description.strip():
        return dialogue.failed("the description is empty: say what it takes and what it returns")
    state.plan = [Approach(f"Go on with {name}.", (Need(name, " ".join(description.split())),))]
    state.done, state.first = done[:MAX_DONE_CHARS], None
    return {"success": True, "output": "It is looked for, or made. You begin anew with it."}


def ask_user(now: Stage, question: str) -> Part[dict[str, Any]]:
    """Ask the user, and wait for the answer."""
    if now.task.request is None:
        return dialogue.failed("nobody can be asked: decide yourself, and say so in the result")
    if now.state.questions >= MAX_USER_QUESTIONS:
        return dialogue.failed(f"the user was asked {MAX_USER_QUESTIONS} times: decide yourself, and say so")
    if not question.strip():
        return dialogue.failed("the question is empty")
    now.state.questions += 1
    answer: HumanAnswer = yield AskHuman(question=question)
    return {"success": True, "output": answer.text}


def ask_model(t: Tick, question: str) -> Part[str]:
    """Ask the model in a conversation of its own, whose messages are recorded for people and for training."""
    first = t.cursor.index
    t.say(BlockType.USER, question)
    return (yield from dialogue.reply(t, first)).answer


def chain_of_code(t: Tick, code: str) -> Part[dict[str, Any]]:
    """Run code that calls `ask_model(question)`, after Chain of Code (Li et al. 2023, arXiv:2312.04474).

    At the first question without an answer the code stops. The model answers, and the code runs again from its
    beginning with all answers so far. So no live process waits for the model.
    """
    answers: dict[str, str] = {}
    while True:
        yield from dialogue.call_in_box(t, "python", {"code": ASK_MODEL.replace("ANSWERS", repr(json.dumps(answers)))})
        answer = yield from dialogue.call_in_box(t, "python", {"code": code})
        if (unanswered := UNANSWERED.search(answer.get("error") or "")) is None:
            return answer
        if len(answers) >= MAX_MODEL_QUESTIONS:
            return dialogue.failed(f"the code has asked {MAX_MODEL_QUESTIONS} questions: ask several things at a time")
        question = json.loads(unanswered[1])
        answers[question] = yield from ask_model(t, question)


ASK_MODEL = """import json
class AskModel(RuntimeError): pass
def ask_model(question, answers=json.loads(ANSWERS)):
    question = str(question)
    if question in answers: return answers[question]
    raise AskModel(json.dumps(question))
"""
UNANSWERED = re.compile(r'AskModel: ("(?:[^"\\\n]|\\.)*") \(line \d+\)\Z')
"""End of the error message when code asks a question without an answer (`python` in box/calls.py)."""


def call_library(now: Stage, call: dialogue.Call) -> Part[dict[str, Any]]:
    """Run a tool in the box, in the version whose signature the model was given, and record the call."""
    version = next(tool.version for tool in now.state.tools if tool.name == call.name)
    tool = yield from look_up("read_tool", dict[str, Any], name=call.name, version=version)
    if not tool:
        return dialogue.failed(f"{call.name} is no longer in the library")
    code = call_source(tool["source"], call.name, call.arguments)
    answer = yield from dialogue.call_in_box(now.t, "python", {"code": code})
    now.t.emit(ToolCalled(name=call.name, version=tool["version"], success=answer["success"]))
    now.state.used = sorted({*now.state.used, f"{call.name}@{tool['version']}"})
    return answer
