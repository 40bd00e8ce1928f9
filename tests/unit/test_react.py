"""ReAct: steps in sequence, malformed calls answered, budgets kept, messages before a failure kept."""

import json
import sys
from typing import Any

import msgspec
import pytest

from tests.support.talk import Talk, reply
from weavegen.agents import react
from weavegen.box import calls as box
from weavegen.errors import ModelError
from weavegen.kernel.steps import (
    Delegate,
    Delegated,
    Evaluated,
    Execute,
    Executed,
    Failure,
    Sample,
    Step,
    SubagentState,
    View,
    Writes,
)
from weavegen.trace.blocks import BlockType

MAIN = SubagentState(name="main", parent=None, description="Win the game.", schema={}, time_budget=60.0)
LIST = '<think>Look.</think>\n<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>'


def world(*replies: str, value: bool = True) -> Any:
    """Replies with these texts in order, and repeats the last one. Tools return "done"."""
    left = list(replies)

    def answer(step: Step) -> Any:
        if isinstance(step, Sample):
            return left.pop(0) if len(left) > 1 else left[0]
        assert isinstance(step, Execute)
        if step.op == "begin":
            return Executed(subagents=(MAIN,), views=(View(title="Board", text="empty"),))
        if step.op == "evaluate":
            return Executed(evaluations=(Evaluated(title="Did we win?", scope="task", value=value),))
        if step.op == "call":
            return Executed(value={"output": "done", "success": True})
        return Executed(subagents=(MAIN,))

    return answer


def test_it_calls_tools_until_it_has_an_answer() -> None:
    talk = Talk("react", {"task": "List."}, world(LIST, LIST, "<think>Enough.</think>\nThere is one file."))
    ended = talk.run()
    roles = [role for role, _ in talk.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert ended.returned["success"] is True
    assert ended.returned["final_response"] == "There is one file."
    assert ended.returned["steps"] == 3
    assert ended.returned["error"] is None
    assert talk.messages[3][1] == '<tool_response>{"success": true, "output": "done"}</tool_response>'
    assert not any(isinstance(step, Execute) and step.op != "call" for step in talk.steps)


def test_several_calls_are_answered_in_order_and_so_are_malformed_ones() -> None:
    broken = "<tool_call>{</tool_call>"
    talk = Talk("react", {"task": "List."}, world(f"{LIST}{broken}{LIST}", "Done."))
    assert talk.run().returned["success"]
    lines = talk.messages[3][1].splitlines()
    values = [json.loads(line.removeprefix("<tool_response>").removesuffix("</tool_response>")) for line in lines]
    assert [value["success"] for value in values] == [True, False, True]
    assert "not valid JSON" in values[1]["error"]
    assert sum(isinstance(step, Execute) for step in talk.steps) == 2


def test_fifty_steps_end_the_run_without_success() -> None:
    talk = Talk("react", {"task": "List."}, world(LIST))
    ended = talk.run()
    assert (ended.returned["success"], ended.returned["error"]) == (False, "Reached maximum steps (50)")
    assert ended.failed is None
    assert sum(isinstance(step, Sample) for step in talk.steps) == 50


def test_a_setting_limits_the_steps() -> None:
    talk = Talk("react", {"task": "List."}, world(LIST), steps=3)
    assert talk.run().returned["error"] == "Reached maximum steps (3)"
    assert sum(isinstance(step, Sample) for step in talk.steps) == 3


@pytest.mark.parametrize(
    ("text", "finish", "success"),
    [
        ("<think>I would have to look.", "length", False),
        ("There are 12 files, and", "length", False),
        ("", "content_filter", False),
        ("I can't help with that.", "refusal", False),
        ("<think>Nothing.</think>", "stop", False),
        ("There are 12 files.", "stop", True),
    ],
)
def test_a_message_that_is_empty_or_cut_off_is_no_final_answer(text: str, finish: str, success: bool) -> None:
    for task in ({"task": "List."}, "self.add_action('a', b)"):
        usual = world("")
        candidate = msgspec.structs.replace(reply(text), finish_reason=finish)
        talk = Talk("react", task, lambda step, u=usual, c=candidate: [c] if isinstance(step, Sample) else u(step))
        returned = talk.run().returned
        assert (returned["success"], returned["error"]) == (success, None if success else f"No final answer ({finish})")


@pytest.mark.parametrize(("steps", "done"), [(3, True), (4, False)])
def test_ticks_that_verified_earlier_steps_of_a_task_are_no_messages(steps: int, done: bool) -> None:
    talk = Talk("react", {"task": "List."}, world(LIST), steps=steps)
    talk.tick(0, None)
    ended = talk.tick(5, {"single": False, "checked": False, "step": 2, "rewards": []})
    assert ended.done is done
    if done:
        assert (ended.returned["steps"], ended.returned["error"]) == (3, "Reached maximum steps (3)")


def test_a_single_turn_runs_its_calls_and_ends() -> None:
    talk = Talk("react", {"task": "List.", "single": True}, world(LIST))
    ended = talk.run()
    assert [role for role, _ in talk.messages] == ["system", "user", "assistant", "tool"]
    assert (ended.returned["success"], ended.returned["steps"]) == (True, 1)


def test_a_failed_generation_keeps_earlier_messages() -> None:
    usual = world(LIST)

    def answer(step: Step) -> Any:
        if isinstance(step, Sample) and step.prompt.window[1] > 2:
            raise ModelError("the conversation takes 99 of the model's 98 tokens: no room is left")
        return usual(step)

    talk = Talk("react", {"task": "List."}, answer)
    ended = talk.run()
    assert (ended.failed, ended.returned["success"], ended.returned["steps"]) == ("model", False, 1)
    assert ended.returned["error"].startswith("Generation error: the conversation takes 99")
    assert [role for role, _ in talk.messages] == ["system", "user", "assistant", "tool"]


def test_messages_before_the_task_and_a_custom_system_prompt() -> None:
    task = {
        "task": "List.",
        "system": "Tools: {tools}",
        "messages": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}],
    }
    talk = Talk("react", task, world("Bye."))
    talk.run()
    assert [role for role, _ in talk.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert talk.messages[0][1].startswith('Tools: {"type": "function"')
    assert talk.blocks[2].block_size is None  # not sampled


def test_sampling_parameters_and_their_settings() -> None:
    talk = Talk("react", {"task": "List."}, world("Bye."))
    talk.run()
    [step] = [step for step in talk.steps if isinstance(step, Sample)]
    assert (step.n, step.max_tokens, step.temperature, step.top_k, step.repetition_penalty) == (1, 0, 0.7, -1, 1.0)
    assert step.prompt.type is BlockType.ASSISTANT
    talk = Talk("react", {"task": "List."}, world("Bye."), temperature=0.2, types={"assistant": {"max_tokens": 9}})
    talk.run()
    [step] = [step for step in talk.steps if isinstance(step, Sample)]
    assert (step.max_tokens, step.temperature) == (9, 0.2)


def test_a_bootstrap_file_is_executed_and_gives_the_task_and_the_check() -> None:
    for value in (True, False):
        talk = Talk("react", "self.add_action('a', b)", world(LIST, "Done.", value=value))
        ended = talk.run()
        types = [str(block.type) for block in talk.blocks]
        assert types == ["bootstrap", "system", "user", "assistant", "tool", "assistant", "outcome"]
        assert talk.messages[1][1].startswith("Win the game.")
        assert "self.add_action('a', b)" in talk.messages[1][1]
        assert "Board:\nempty" in talk.messages[1][1]
        assert ended.returned["success"] is value
        assert ended.returned["metadata"] == {"evaluations": {"Did we win?": value}}
        assert talk.blocks[-1].body == f"Outcome:\ntask evaluation | Did we win? | {value}"


@pytest.mark.parametrize(
    ("text", "value", "success"), [("Done.", True, None), ("Done.", False, False), ("", True, False)]
)
def test_success_is_unknown_only_where_nothing_speaks_against_it(text: str, value: bool, success: bool | None) -> None:
    lost = Failure(type="OSError", message="no", traceback="", stage="process")
    evaluated = Evaluated(title="Did we win?", scope="task", value=value)
    unknown = Evaluated(title="Is it safe?", scope="task", protected=True, cause="infrastructure", error=lost)
    usual = world(text)

    def answer(step: Step) -> Any:
        evaluates = isinstance(step, Execute) and step.op == "evaluate"
        return Executed(evaluations=(evaluated, unknown)) if evaluates else usual(step)

    assert Talk("react", "self.add_action('a', b)", answer).run().returned["success"] is success


def test_a_failing_bootstrap_file_fails_the_trace() -> None:
    failure = Failure(type="OSError", message="no", traceback="", stage="callback")
    talk = Talk("react", "self.add_action('a', b)", lambda step: Executed(error=failure))
    ended = talk.run()
    assert (ended.failed, ended.reason) == ("bootstrap", "OSError: no")


@pytest.mark.parametrize(
    "waiting",
    [
        Executed(waits_for="helper"),
        Executed(delegates=(Delegate(agent="research", task={"task": "Who?"}, label="Who?"),)),
        Executed(writes=Writes(type="debug")),
    ],
)
def test_a_bootstrap_file_whose_action_waits_fails_the_trace(waiting: Executed) -> None:
    talk = Talk("react", "self.add_action('a', b)", lambda step: waiting)
    ended = talk.run()
    assert (ended.failed, ended.returned) == ("bootstrap", None)
    assert ended.reason is not None
    assert ended.reason.startswith("its first action waits for an agent or a block, which react can't do")
    assert len(talk.steps) == 1


def test_the_task_is_that_of_main_and_a_view_that_failed_shows_its_error() -> None:
    usual = world("Done.")
    helper = SubagentState(name="helper", parent=None, description="Fetch.", schema={}, time_budget=5.0)
    broken = Failure(type="OSError", message="no board", traceback="Traceback", stage="view")
    begun = Executed(subagents=(helper, MAIN), views=(View(title="Board", error=broken), View(title="Log", text="")))

    def answer(step: Step) -> Any:
        return begun if isinstance(step, Execute) and step.op == "begin" else usual(step)

    talk = Talk("react", "self.add_action('a', b)", answer)
    talk.run()
    task = talk.messages[1][1]
    assert task.startswith("Win the game.")
    assert "Board:\nno board\n" in task
    assert "Fetch." not in task
    assert "None" not in task


def test_a_tool_that_kills_its_process_gives_an_error_as_its_answer() -> None:
    failure = Failure(type="EnvironmentFailure", message="it died", traceback="", stage="process")
    replies = iter([LIST, "Done."])

    def answer(step: Step) -> Any:
        return [reply(next(replies))] if isinstance(step, Sample) else Executed(error=failure)

    talk = Talk("react", {"task": "List."}, answer)
    assert talk.run().returned["success"]
    assert "EnvironmentFailure: it died" in talk.messages[3][1]


TOOLS = """
import collections

seen = collections.Counter()

def count_word(word: str, times: int = 1) -> int:
    \"\"\"Count a word, and return how often it was counted so far.\"\"\"
    seen[word] += times
    return seen[word]

def _hidden():
    return 1
"""


def own(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_functions_of_a_task_are_tools_that_keep_their_state() -> None:
    calls = own("count_word", word="a") + own("count_word", word="a", times=4) + own("_hidden") + own("count_word")
    runs: list[str] = []

    def answer(step: Step) -> Any:
        if isinstance(step, Sample):
            return calls if len(runs) == 0 else "Done."
        assert isinstance(step, Execute)
        code = json.loads(step.source)["arguments"]["code"]
        runs.append(code)
        return Executed(value=box.call("python", {"code": code}))

    box.namespace = {}
    talk = Talk("react", {"task": "Count.", "tools": TOOLS}, answer)
    try:
        assert talk.run().returned["final_response"] == "Done."
    finally:
        sys.modules.pop("task_tools", None)
    values = [json.loads(line[15:-16]) for line in talk.messages[3][1].splitlines()]
    assert [value.get("output") for value in values] == ["1\n", "5\n", None, None]
    assert "there is no tool '_hidden'" in values[2]["error"]
    assert "missing required field `word`" in values[3]["error"]
    schema = next(line for line in talk.messages[0][1].splitlines() if '"count_word"' in line)
    assert json.loads(schema)["function"]["parameters"]["properties"]["times"] == {"type": "integer", "default": 1}
    assert "research" not in talk.messages[0][1]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def f(:", "not legal Python"),
        ("x = 1", "defines no function"),
        ("def python(code: str): ...", "there is a tool python already"),
        ("def f(): ...\nasync def g(): ...", "g is async: write `def g`"),
        ("def f(*words): ...", "must take its arguments by name"),
    ],
)
def test_functions_that_can_not_be_tools_are_refused(source: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        react.Task("Count.", tools=source)


LINES = """from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Line:
    text: str

def lines(text: str) -> str:
    return "\\n".join(Line(part).text for part in text.split())
"""


def test_a_text_that_a_function_returns_is_shown_as_it_is() -> None:
    """Dataclasses need their module in sys.modules. Names that the model has defined stay."""
    code = react.OWN_TOOL.format(source=LINES, name="lines", arguments=json.dumps({"text": "a 'b'"}))
    box.namespace = {}
    try:
        assert box.call("python", {"code": "json = 5"})["output"] == ""
        assert box.call("python", {"code": code})["output"] == "a\n'b'\n"
        assert box.call("python", {"code": "json"})["output"] == "5\n"
    finally:
        sys.modules.pop("task_tools", None)


def test_an_empty_task_is_refused() -> None:
    with pytest.raises(ValueError, match="task is empty"):
        react.Task(" \n")


def test_a_researcher_can_be_asked_where_the_task_allows_it() -> None:
    look_up = own("research", task="How long is the river?") + own("research", task=" ")

    def answer(step: Step) -> Any:
        if isinstance(step, Sample):
            return look_up if not asked else "180 km."
        assert isinstance(step, Delegate)
        asked.append(step)
        return Delegated(trace=7, returned={"summary": "It is 180 km long.", "error": None})

    asked: list[Delegate] = []
    talk = Talk("react", {"task": "Find out.", "research": True}, answer)
    assert talk.run().returned["final_response"] == "180 km."
    assert [(step.agent, step.task) for step in asked] == [("research", {"task": "How long is the river?"})]
    first, second = talk.messages[3][1].splitlines()
    assert '"output": "It is 180 km long."' in first
    assert "the task is empty" in second
