"""The toolsmith in a plain loop: its stages, how tools are chosen, made and used, and what users can change."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from simulation.policies import answer as judge
from simulation.policies import toolsmith as policy
from simulation.policies.dialogue import Conversation
from simulation.policies.situation import read
from tests.support.talk import Talk, reply
from weavegen.agents.toolsmith.library import call_source, library_tool, signature_of
from weavegen.agents.toolsmith.lines import Need, read_choice, read_plan, read_queries
from weavegen.agents.toolsmith.make import SIGNATURES, generality
from weavegen.agents.toolsmith.state import Task
from weavegen.box import calls
from weavegen.kernel import prompts
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.steps import (
    AskHuman,
    Delegate,
    Delegated,
    Execute,
    Executed,
    HumanAnswer,
    LookUp,
    LookUpResult,
    Sample,
    Score,
    Step,
    ToolCalled,
    ToolSaved,
    YesNo,
)
from weavegen.search.index import rank_texts
from weavegen.trace.blocks import BlockType

STAGES = ("queries", "summary", "plan", "choice", "neighbours", "signature", "execute")
HEADS = {prompts.text(f"toolsmith_{name}").partition("\n")[0]: name for name in STAGES}
SOURCE = 'def count_units(text: str, unit: str = "words") -> int:\n    """Count."""\n    return len(text.split())\n'
STUB = (
    '```python\ndef count_units(text: str, unit: str = "words") -> int:\n    """Count units of a text."""\n    ...\n```'
)
FINISH = '<tool_call>{"name": "finish", "arguments": {"success": true, "result": "There are 3."}}</tool_call>'
TASK: dict[str, Any] = {"task": 'How many words has "one two three"?', "user": "kim", "request": 7}


def call(name: str, /, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


class World:
    """Everything around the program: a library, requests, a box, and a model with given replies.

    `says` has the replies of each stage in order; the last one repeats.
    """

    def __init__(self, **says: list[str]) -> None:
        usual = {
            "queries": ["data: words\noutcome: count words\npreference: language"],
            "summary": ["Nothing is known."],
            "plan": ["approach: Count them.\ntool: count_units: a text, returns how many words"],
            "choice": ["create: count_units: a text, returns how many words"],
            "neighbours": ["request: How many lines has a poem?"],
            "signature": [STUB],
            "execute": [FINISH],
        }
        self.says = {name: list(texts) for name, texts in (usual | says).items()}
        self.library: dict[str, dict[str, Any]] = {}
        self.request: dict[str, Any] = {"objective": TASK["task"], "requirements": [], "constraints": []}
        self.request["revision"] = 0
        self.delegated: list[Delegate] = []
        self.makes: Callable[[Delegate], Delegated] = lambda step: Delegated(
            trace=9, returned={"source": SOURCE, "tests": "t", "evaluator": "e", "score": 1.5, "program": 31}
        )
        self.questions: list[str] = []
        self.codes: list[str] = []
        self.talk: Talk

    def run(self, task: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
        self.talk = Talk("toolsmith", task or TASK, self.answer, **settings)
        ended = self.talk.run()
        assert isinstance(ended.returned, dict), ended
        return ended.returned

    def stage(self, step: Sample) -> str:
        """The stage to which the step's conversation belongs."""
        texts = [block.body for block in self.talk.blocks[step.prompt.window[0] : step.prompt.window[1]]]
        return HEADS.get(texts[0].partition("\n")[0], "model")

    def read(self, stage: str, number: int = 1) -> str:
        """What the model read in the first message of the stage's conversation with this number."""
        head = prompts.text(f"toolsmith_{stage}").partition("\n")[0]
        positions = [at for at, (_, text) in enumerate(self.talk.messages) if text.startswith(head)]
        return self.talk.messages[positions[number - 1] + 1][1]

    def answer(self, step: Step) -> Any:
        if isinstance(step, Sample):
            texts = self.says.get(self.stage(step), ["I am the model."])
            return texts.pop(0) if len(texts) > 1 else texts[0]
        if isinstance(step, Score):
            return [[YesNo(yes=0.8, no=0.1) for _ in step.questions] for _ in range(SIGNATURES)]
        if isinstance(step, LookUp):
            return self.consulted(step.tool, step.arguments)
        if isinstance(step, Delegate):
            self.delegated.append(step)
            return self.makes(step)
        if isinstance(step, AskHuman):
            self.questions.append(step.question)
            return HumanAnswer(text="the one on page 3")
        assert isinstance(step, Execute)
        assert step.op == "call"
        asked = json.loads(step.source)
        self.codes.append(asked["arguments"].get("code", ""))
        return Executed(value={"success": True, "output": "3"})

    def consulted(self, tool: str, arguments: dict[str, Any]) -> LookUpResult:
        self.keep()
        if tool == "read_request":
            return LookUpResult(output=json.dumps(self.request))
        if tool == "find_tools":
            words = arguments["query"].lower().replace("_", " ").split()
            tools = [tool_row for tool_row in self.library.values() if set(words) & set(tool_row["name"].split("_"))]
            return LookUpResult(output=json.dumps(tools))
        if tool == "read_tool":
            tool_row = self.library.get(arguments["name"])
            return LookUpResult(
                success=tool_row is not None, output=json.dumps(tool_row) if tool_row else "there is none"
            )
        if tool == "search_corpus":
            return LookUpResult(success=False, output="the corpus is empty")
        return LookUpResult(output="[]")

    def keep(self) -> None:
        """Save the tools that were made into the library, as the engine does when it applies the effects."""
        for made in [effect for effect in self.talk.effects if isinstance(effect, ToolSaved)]:
            saved = self.library.get(made.name)
            if saved is None or saved["source"] != made.source:
                self.library[made.name] = {
                    "name": made.name, "description": made.description, "signature": made.signature,
                    "version": 1 if saved is None else saved["version"] + 1, "uses": 0, "successes": 0,
                    "source": made.source, "tests": made.tests, "evaluator": made.evaluator,
                }  # fmt: skip


def effects(world: World, type: type[Any]) -> list[Any]:
    return [effect for effect in world.talk.effects if isinstance(effect, type)]


def test_a_request_from_its_queries_to_its_result() -> None:
    world = World(execute=[call("count_units", text="one two three"), FINISH])
    returned = world.run()
    assert returned == {
        "success": True, "result": "There are 3.", "error": None, "turns": 2, "tools": ["count_units@1"],
        "made": ["count_units"],
    }  # fmt: skip
    assert [state["stage"] for state in world.talk.states] == [
        "summary", "plan", "choice", "signature", "make", "execute", "execute"
    ]  # fmt: skip
    asked = [(step.tool, step.arguments.get("query")) for step in world.talk.steps if isinstance(step, LookUp)]
    assert ("search_corpus", "words") in asked
    assert ("past_requests", "count words") in asked
    assert ("preferences", "language") in asked
    [delegated] = world.delegated
    assert (delegated.agent, delegated.task["name"]) == ("funsearch", "count_units")
    assert delegated.task["skeleton"].startswith("def count_units(text: str, unit: str='words') -> int:\n")
    [made] = effects(world, ToolSaved)
    assert (made.name, made.description, made.score) == ("count_units", "Count units of a text.", 1.5)
    assert (made.tests, made.evaluator, made.program) == ("t", "e", (9, 31))
    assert effects(world, ToolCalled) == [ToolCalled(name="count_units", version=1, success=True)]
    namespace: dict[str, Any] = {}
    *lines, last = world.codes[0].split("\n")
    exec("\n".join(lines), namespace)
    assert eval(last, namespace) == 3


def test_each_stage_reads_only_its_own_conversation() -> None:
    world = World()
    world.run()
    for step in world.talk.steps:
        if isinstance(step, Sample):
            first, end = step.prompt.window
            roles = [block.type for block in world.talk.blocks[first:end]]
            assert roles[0] is BlockType.SYSTEM
            assert roles.count(BlockType.SYSTEM) == 1
    assert "count_units" not in world.read("plan")
    assert "count_units: a text" in world.read("choice")


def test_a_second_similar_request_uses_the_tool_and_makes_no_new_one() -> None:
    first = World()
    first.run()
    second = World(choice=["use: count_units"], execute=[call("count_units", text="a b"), FINISH])
    second.library = first.library
    second.request["objective"] = 'How many words has "a b"?'
    returned = second.run(TASK | {"task": 'How many words has "a b"?'})
    assert (returned["tools"], returned["made"]) == (["count_units@1"], [])
    assert not second.delegated
    assert "def count_units(" in second.read("choice")


def test_a_better_version_keeps_the_signature_and_gets_tests_and_evaluator() -> None:
    world = World()
    world.run()
    again = World()
    again.library = world.library
    better = SOURCE.replace("len(text.split())", "len(text.split()) + 0")
    again.makes = lambda step: Delegated(trace=12, returned={"source": better, "score": 2, "program": 4})
    again.run()
    [delegated] = again.delegated
    assert (delegated.task["skeleton"], delegated.task["tests"]) == (SOURCE, "t")
    assert again.library["count_units"]["version"] == 2
    assert not any(isinstance(step, Score) for step in again.talk.steps)
    none_better = World(execute=[call("count_units", text="a b"), FINISH])
    none_better.library = world.library
    none_better.makes = lambda step: Delegated(trace=13, error="its budget was spent")
    assert none_better.run()["tools"] == ["count_units@2"]


def test_the_best_program_of_a_search_that_ended_early_becomes_a_tool() -> None:
    world = World(execute=[call("count_units", text="a b"), FINISH])
    error = "it had spent its budget of ticks before it returned"
    world.makes = lambda step: Delegated(trace=9, returned={"source": SOURCE, "score": 1.5, "program": 4}, error=error)
    returned = world.run()
    assert (returned["made"], returned["tools"]) == (["count_units"], ["count_units@1"])
    [made] = effects(world, ToolSaved)
    assert (made.source, made.program) == (SOURCE, (9, 4))


def test_the_run_goes_on_if_a_tool_can_not_be_made() -> None:
    for came in (
        Delegated(trace=9, error="its budget was spent"),
        Delegated(trace=9, returned={"error": "no evaluator"}),
        Delegated(trace=9, returned={"source": "def other(): pass"}),
        Delegated(trace=9, returned={"source": "def count_units(*a): pass"}),
        Delegated(trace=9, returned="nonsense"),
    ):
        world = World()
        world.makes = lambda step, came=came: came  # type: ignore[misc]
        returned = world.run()
        assert (returned["success"], returned["made"]) == (True, [])
        assert not effects(world, ToolSaved)
        assert "count_units could not be made: " in world.read("execute")


def test_the_most_general_signature_that_works_is_made() -> None:
    special = '```python\ndef words_in_report() -> int:\n    """Of the report."""\n```'
    general = STUB
    idle = '```python\ndef run(code: str) -> str:\n    """Run it."""\n    ...\n```'
    written = [special, "no code", general, idle, "```python\ndef python(code):\n    'x'\n```", general]

    class Judged(World):
        def answer(self, step: Step) -> Any:
            if isinstance(step, Sample) and step.n > 1:
                return [reply(text) for text in written]
            if isinstance(step, Score):
                assert step.sample is not None
                # Probabilities: serves the request, works, serves others.
                rows = {special: (0.9, 0.9, 0.1), general: (0.9, 0.9, 0.9), idle: (0.9, 0.01, 0.95)}
                usual = (0.99, 0.99, 0.99)
                own = [rows.get(text, usual) for text in written]
                return [[YesNo(yes=p, no=1 - p) for p in row] for row in own]
            return super().answer(step)

    world = Judged()
    world.run()
    assert world.delegated[0].task["name"] == "count_units"
    [score] = [step for step in world.talk.steps if isinstance(step, Score)]
    assert [question[:20] for question in score.questions] == [
        "Can this function do", "Does this function d", "Could this function,"
    ]  # fmt: skip
    assert score.questions[2].endswith("serve the request: How many lines has a poem?")
    [chosen] = [draft for draft in world.talk.drafts if draft.candidate is not None and draft.score is not None]
    assert (chosen.body, chosen.candidate) == (general, (chosen.candidate[0], 2))  # type: ignore[index]
    [made] = effects(world, ToolSaved)
    assert made.generality == pytest.approx(generality([YesNo(yes=0.9, no=0.1)] * 3))


def test_an_unreadable_reply_is_requested_again_and_then_skipped() -> None:
    world = World(
        queries=["hm"], summary=[""], plan=["hm", "tool: f: first"], choice=["use: nothing", "create: python: x", "?"]
    )
    returned = world.run()
    assert returned["success"]
    asked = [text for role, text in world.talk.messages if role == "user" and text.startswith("That is not the form")]
    assert len(asked) == 4 * 2
    assert not world.delegated


def test_plans_are_made_at_most_three_times() -> None:
    world = World(choice=["replan: smaller steps"])
    world.run()
    stages = [state["stage"] for state in world.talk.states]
    assert stages.count("choice") == 3
    assert "smaller steps" in world.read("plan", 2)
    assert "This was the last plan" in world.read("choice", 3)
    assert "There is no further plan" not in world.read("choice", 3)
    assert not world.delegated


def test_the_user_is_asked_and_the_answer_is_read() -> None:
    world = World(choice=["none: easy"], execute=[call("ask_user", question="Which text?"), FINISH])
    world.run()
    assert world.questions == ["Which text?"]
    assert '"output": "the one on page 3"' in world.talk.messages[-2][1]


def test_without_a_requester_no_question_is_asked() -> None:
    world = World(choice=["none: easy"], execute=[call("ask_user", question="Which text?"), FINISH])
    world.run({"task": "How many words?"})
    assert world.questions == []
    assert "nobody can be asked" in world.talk.messages[-2][1]


def test_a_step_that_needs_the_model_is_answered_in_a_conversation_of_its_own() -> None:
    world = World(choice=["none: easy"], execute=[call("ask_model", question="Is this polite: Hi?"), FINISH])
    world.run()
    [step] = [
        candidate_step
        for candidate_step in world.talk.steps
        if isinstance(candidate_step, Sample) and world.stage(candidate_step) == "model"
    ]
    first, end = step.prompt.window
    assert [block.body for block in world.talk.blocks[first:end]] == ["Is this polite: Hi?"]
    assert '"output": "I am the model."' in world.talk.messages[-2][1]


def test_a_researcher_can_be_asked() -> None:
    world = World(choice=["none: easy"], execute=[call("research", task="How does one count words?"), FINISH])
    world.makes = lambda step: Delegated(trace=9, returned={"summary": "By spaces.", "error": None})
    world.run()
    assert [(step.agent, step.task) for step in world.delegated] == [
        ("research", {"task": "How does one count words?"})
    ]
    assert '"output": "By spaces."' in world.talk.messages[-2][1]


def test_code_may_ask_the_model_and_runs_again_with_the_answer() -> None:
    code = "a = ask_model('Is \"it\"\\n polite?')\nb = ask_model('Is it long?')\nprint(a, b)"
    world = World(choice=["none: easy"], execute=[call("python", code=code), FINISH], model=["Yes.", "No."])
    usual = world.answer

    def running(step: Step) -> Any:
        if isinstance(step, Execute):
            asked = json.loads(step.source)
            return Executed(value=calls.call(asked["name"], asked["arguments"]))
        return usual(step)

    world.answer = running  # type: ignore[method-assign]
    world.run()
    assert world.talk.messages[-2][1] == '<tool_response>{"success": true, "output": "Yes. No.\\n"}</tool_response>'
    questions = [text for role, text in world.talk.messages if role == "user" and "Is" in text][-2:]
    assert questions == ['Is "it"\n polite?', "Is it long?"]
    endless = "for n in range(99): ask_model(f'{n}?')"
    world = World(choice=["none: easy"], execute=[call("python", code=endless), FINISH], model=["Yes."])
    usual = world.answer
    world.answer = running  # type: ignore[method-assign]
    world.run()
    assert "the code has asked 8 questions" in world.talk.messages[-2][1]


def test_a_changed_request_is_read_at_the_next_turn() -> None:
    world = World(choice=["none: easy"], execute=[call("python", code="1"), FINISH])
    answer = world.answer

    def changing(step: Step) -> Any:
        if isinstance(step, Execute):
            world.request |= {"objective": "How many lines?", "revision": 1}
        return answer(step)

    world.answer = changing  # type: ignore[method-assign]
    world.run()
    notices = [text for role, text in world.talk.messages if role == "user" and "changed the request" in text]
    assert notices == ["The user has changed the request. From now on it is:\n\nThe request:\nHow many lines?"]


def test_a_missing_tool_is_made_and_the_execution_starts_again() -> None:
    missing = call("create_tool", name="count_units", description="a text; how many", done="The text is on page 3.")
    world = World(choice=["none: easy", "create: count_units: counts"], execute=[missing, FINISH])
    returned = world.run()
    assert returned["made"] == ["count_units"]
    assert "The text is on page 3." in world.read("execute", 2)
    assert "count_units" in world.talk.messages[-3][1]
    refused = [
        call("create_tool", name=name, description=what, done="")
        for name, what in (("python", "x"), ("a b", "x"), ("count_units", " "))
    ]
    world = World(choice=["none: easy"], execute=[*refused, FINISH])
    assert world.run()["made"] == []
    assert not world.delegated


def test_a_run_that_never_finishes_is_ended() -> None:
    returned = World(choice=["none: easy"], execute=[call("python", code="1")]).run(steps=4)
    assert (returned["success"], returned["turns"]) == (False, 4)
    assert "limit of 4 steps" in returned["error"]
    returned = World(choice=["none: easy"], execute=["Let me think."]).run()
    assert (returned["success"], returned["turns"]) == (False, 3)


def test_malformed_calls_are_answered() -> None:
    broken = ["<tool_call>{</tool_call>", call("no_such_tool"), call("finish", success="yes"), FINISH]
    world = World(choice=["none: easy"], execute=broken)
    assert world.run()["turns"] == 4
    answers = [text for role, text in world.talk.messages if role == "tool"]
    assert len(answers) == 3
    assert all('"success": false' in text for text in answers)


def test_the_same_request_gives_the_same_trace_with_the_simulation() -> None:
    """Of 40 requests to the simulated model most succeed, and tools are used again."""
    library: dict[str, dict[str, Any]] = {}
    succeeded = made = used = 0
    for number in range(40):
        objective = ('How many words has "{}"?', 'Which words are most frequent in "{}"?', "Is it late?")[number % 3]
        objective = objective.format("the cat and the dog " * (number % 5 + 1))
        worlds = []
        for _ in range(2):
            world = Simulated(number, {**library})
            world.request["objective"] = objective
            returned = world.run(TASK | {"task": objective})
            worlds.append((world, returned))
        (first, returned), (second, _) = worlds
        assert first.talk.blocks == second.talk.blocks
        library = first.library
        succeeded += returned["success"]
        made += len(returned["made"])
        used += bool(returned["tools"])
    assert succeeded > 30
    assert 2 <= made <= 6
    assert used > 15
    assert {"count_units", "frequent_words"} <= set(library)


class Simulated(World):
    """A world whose replies come from the simulation's policy."""

    def __init__(self, seed: int, library: dict[str, dict[str, Any]]) -> None:
        super().__init__()
        self.seed, self.library = seed, library
        self.makes = lambda step: Delegated(
            trace=9, returned={"source": step.task["skeleton"], "score": 1.0, "program": 3}
        )

    def answer(self, step: Step) -> Any:
        if isinstance(step, Sample):
            first, end = step.prompt.window
            roles = {"system": "system", "assistant": "assistant"}
            messages = [(roles.get(block.type, "user"), block.body) for block in self.talk.blocks[first:end]]
            conversation = Conversation(messages)
            assert policy.knows(conversation)
            seed = derive_seed(self.seed, step.seed)
            self.sampled = [reply(policy.write(conversation, seed, number)) for number in range(step.n)]
            return self.sampled
        if isinstance(step, Score):
            rows = []
            for candidate in self.sampled:
                asked = [judge(read(f"{candidate.text}\n#q: {question}")) for question in step.questions]
                rows.append([YesNo(yes=yes, no=1 - yes) for yes in asked])
            return rows
        return super().answer(step)


def test_a_blank_task_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="task is empty: say what is wanted"):
        msgspec.convert({"task": " \n"}, Task)


# --------------------------------------------------------------------------------- parsing and helpers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data: a b", {"data": ["a b"], "outcome": [], "preference": []}),
        ("- **data**: `a`\n* Outcome : b\n\nso: c", {"data": ["a"], "outcome": ["b"], "preference": []}),
        ("data: a\n" * 9, {"data": ["a"], "outcome": [], "preference": []}),
        ("data: a\ndata: b\ndata: c\ndata: d", {"data": ["a", "b", "c"], "outcome": [], "preference": []}),
    ],
)
def test_queries_are_read(text: str, expected: dict[str, list[str]]) -> None:
    assert read_queries(text) == expected


@pytest.mark.parametrize("text", ["", "data:", "I would search for data", "data:\noutcome:   "])
def test_no_queries(text: str) -> None:
    with pytest.raises(ValueError, match="data: KEYWORDS"):
        read_queries(text)


def test_plans_are_read() -> None:
    one, two = read_plan("approach: x\ntool: f: takes: much\ntool: g(a: int) -> str: gives\napproach: y")
    assert one.needs == (Need("f", "takes: much"), Need("g", "gives"))
    assert (two.text, two.needs) == ("y", ())
    for mark in ("1. approach:", "2) **Approach**:", "### Approach 3:", "- approach:"):
        assert [approach.text for approach in read_plan(f"{mark} x\n1. tool: f: y")] == ["x"]
    for bad in ("", "tool: f: x", "approach: x\ntool: f", "approach: x\ntool: 2f: y", "approach: x\ntool: class: y"):
        with pytest.raises(ValueError, match=r"line|name"):
            read_plan(bad)


def test_choices_are_read() -> None:
    choice = read_choice("use: f(x)\nuse: f\ncreate: g: y\nnone: no", ["f"], ["python"], replan=True)
    assert (choice.use, choice.create, choice.replan) == (("f",), (Need("g", "y"),), "")
    for marked in ("use: `f` counts", "- use: **f**: it counts", "use: `f(x)`"):
        assert read_choice(marked, ["f"], [], replan=True).use == ("f",)
    assert read_choice("replan: other", [], [], replan=True).replan == "other"
    assert read_choice("none: easy", [], [], replan=False).use == ()
    for bad in ("use: h", "create: python: x", "create: g", "", "replan: other"):
        with pytest.raises(ValueError):  # noqa: PT011 - each has its own words
            read_choice(bad, ["f"], ["python"], replan=False)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1", "def f(*a): pass", "def f(**a): pass", "def f(a, /): pass", "def f(a)", "def f(): 0\ndef f(): 1",
        "class f: pass", "async def f(): pass", "def _f(): pass", "def f(__init__): pass", "def f(_a): pass",
        "(" * 5000, "def f(a: 'x' = 1", "x" * 10 + "\0",
    ],
)  # fmt: skip
def test_sources_that_can_not_be_a_tool(source: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        signature_of(source, "f")


def test_a_tool_is_described_without_being_run() -> None:
    source = (
        "raise SystemExit\n"
        "def f(text: str, n: int = 3, words: list[str] = ['a'], more: dict[str, float] | None = None, "
        "x=open('y')):\n"
        '    "Do it."\n'
    )
    signature = signature_of(source, "f")
    tool = library_tool(signature.name, signature.line, signature.description)
    schema = tool.schema()["function"]["parameters"]
    assert schema["required"] == ["text"]
    assert schema["properties"]["words"]["items"] == {"type": "string"}
    assert schema["properties"]["n"] == {"type": "integer", "default": 3}
    assert tool.complaint({"text": "a", "n": 4, "more": {"b": 1}}) is None
    assert "n" in (tool.complaint({"text": "a", "n": "4"}) or "")
    assert "z" in (tool.complaint({"text": "a", "z": 1}) or "")
    assert "text" in (tool.complaint({}) or "")


def test_a_search_returns_the_only_text_and_no_text_without_the_words() -> None:
    assert [position for position, _ in rank_texts("count words", ["Count the words of a text."], 5)] == [0]
    assert rank_texts("weather", ["Count the words of a text."], 5) == []
    assert rank_texts("", ["a"], 5) == rank_texts("a", [], 5) == rank_texts("a", ["", "!"], 5) == []
    texts = ["rows of a table", "count_words of a text", "words"]
    ranked = rank_texts("count words", texts, 2)
    assert [position for position, _ in ranked] == [1, 2]
    assert ranked[0][1] > ranked[1][1] > 0


def test_a_call_passes_any_argument_to_the_tool() -> None:
    odd = {"text": 'it\'s "so" \\ \n\N{SNOWMAN} {}', "unit": "words"}
    source = 'WORDS = 1\ndef count_units(text, unit):\n    """It\'s."""\n    return [text, unit, WORDS]\n'
    *lines, last = call_source(source, "count_units", odd).split("\n")
    namespace: dict[str, Any] = {"count_units": None}
    exec("\n".join(lines), namespace)
    assert eval(last, namespace) == [odd["text"], "words", 1]
    assert namespace["count_units"] is None


def test_a_tool_may_define_a_dataclass_whose_annotations_are_texts() -> None:
    source = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Count:\n"
        "    words: int\n"
        "def count_units(text: str) -> int:\n"
        "    return Count(len(text.split())).words\n"
    )
    answer = calls.call("python", {"code": call_source(source, "count_units", {"text": "a b"})})
    assert answer == {"success": True, "output": "2\n"}
