"""FunSearch in memory: missing pieces are written first, the best is never lost, every program is recorded."""

import ast
import json
import re
from typing import Any

import msgspec
import pytest

from tests.support import ROOT
from tests.support.talk import Talk, reply
from weavegen.agents.dialogue import task_of
from weavegen.agents.funsearch import MAX_PREPARATION_TICKS, Task, is_stub, program_in
from weavegen.errors import ModelError
from weavegen.kernel.steps import Execute, Executed, Failure, Note, ProgramEvaluated, Sample, Step

EVALUATOR = "def evaluate(function):\n    return function()\n"
GIVEN = {"name": "f", "description": "Return much.", "skeleton": "def f():\n    return 0\n", "evaluator": EVALUATOR}
TEST = "def test(function):\n    assert function() >= 0\n"


def block(source: str) -> str:
    return f"<think>Perhaps.</think>\n```python\n{source}\n```"


def verdict(source: str, request: dict[str, Any]) -> dict[str, Any]:
    """The result of a trial of a program that returns a number."""
    match = re.search(r"return (-?\d+)", source)
    if "NotImplementedError" in source:
        stage = "test" if request["tests"] else "evaluator"
        return {"success": False, "error": f"{stage}: NotImplementedError"}
    if match is None or "broken" in request["tests"] or "broken" in request["evaluator"]:
        return {"success": False, "error": "program: SyntaxError: invalid syntax"}
    if request["tests"] and int(match[1]) < 0:
        return {"success": False, "error": "test: AssertionError"}
    score = float(match[1]) if request["evaluator"] else None
    return {"success": True, "score": score, "scores": [] if score is None else [score], "error": None}


def world(*replies: str) -> Any:
    """Replies with these texts in order, and repeats the last one. Programs are evaluated by `verdict`."""
    left = list(replies)

    def answer(step: Step) -> Any:
        if isinstance(step, Sample):
            return [reply(left.pop(0) if len(left) > 1 else left[0]) for _ in range(step.n)]
        assert isinstance(step, Execute)
        assert step.op == "trial"
        request = json.loads(step.source)
        return Executed(value=[verdict(source, request) for source in request["programs"]])

    return answer


def evaluated_programs(talk: Talk) -> list[ProgramEvaluated]:
    return [effect for effect in talk.effects if isinstance(effect, ProgramEvaluated)]


def test_the_tags_of_thoughts_in_code_are_text() -> None:
    source = "def f():\n    return s.split('</think>')[-1].replace('<think>', '')\n"
    assert program_in(f"Not this:\n```\nx\n```\n</think>\n```python\n{source}```", "f") == source
    assert program_in(f"```python\n{source}```", "f") == source


def test_the_best_of_all_generations_is_returned() -> None:
    replies = [block(f"def f():\n    return {number % 7}") for number in (3, 1, 6, 2, 0, 5, 4, 2, 1, 1)]
    talk = Talk("funsearch", {**GIVEN, "generations": 3, "candidates": 2, "islands": 2}, world(*replies))
    ended = talk.run()
    assert ended.failed is None
    assert ended.returned == {
        "name": "f", "description": "Return much.", "source": "def f():\n    return 6\n", "score": 6.0,
        "generation": 1, "tests": "", "evaluator": EVALUATOR, "program": 3,
    }  # fmt: skip
    assert [program.number for program in evaluated_programs(talk)] == list(range(1 + 3 * 2 * 2))
    lines = [effect.detail for effect in talk.effects if isinstance(effect, Note)]
    assert lines[-1] == "f: generation 3 of 3, best score 6 (program 3)"


def test_every_program_is_recorded_with_its_parents() -> None:
    replies = [block("def f():\n    return 1"), "No code.", block("def f(:"), block("def f():\n    return 2")]
    task = {**GIVEN, "generations": 2, "candidates": 2, "islands": 1}
    talk = Talk("funsearch", task, world(*replies))
    talk.run()
    first, first_child, rejected, broken, second_child = evaluated_programs(talk)
    assert (first.number, first.generation, first.island, first.score) == (0, 0, None, 0.0)
    assert (
        first_child.generation,
        first_child.island,
        first_child.parents,
        first_child.score,
        first_child.signature,
    ) == (1, 0, (0,), 1.0, (1.0,))
    assert (rejected.source, rejected.score) == ("", None)
    assert rejected.error == "the message holds no code block with the function"
    assert broken.parents == (0, 1)
    assert "SyntaxError" in (broken.error or "")
    assert second_child.score == 2.0
    samples = [ordinal for ordinal, step in enumerate(talk.steps[1:]) if isinstance(step, Sample)]
    assert len(samples) == 2
    assert (first_child.candidate, rejected.candidate) == ((0, 0), (0, 1))


def test_the_best_message_of_each_island_becomes_part_of_the_trace() -> None:
    replies = [block("def f():\n    return 1"), block("def f():\n    return 8"), block("def f():\n    return 3")]
    talk = Talk("funsearch", {**GIVEN, "generations": 1, "candidates": 3, "islands": 1}, world(*replies))
    talk.run()
    roles = [role for role, _ in talk.messages]
    assert roles == ["user", "tool", "user", "assistant", "tool"]
    assert "return 8" in talk.messages[3][1]
    assert [draft.candidate for draft in talk.drafts if draft.candidate] == [(0, 1)]
    assert "Program 2 (the message above): score 8" in talk.messages[4][1]
    [sample] = [step for step in talk.steps if isinstance(step, Sample)]
    assert sample.prompt.window == (2, 3)


def test_the_model_reads_the_best_versions_in_ascending_order() -> None:
    replies = [block(f"def f():\n    return {number}") for number in (5, 9)]
    talk = Talk("funsearch", {**GIVEN, "generations": 2, "candidates": 2, "islands": 1}, world(*replies))
    talk.run()
    asked = [text for role, text in talk.messages if role == "user"][-1]
    scores = [float(score) for score in re.findall(r"^Version \d+, score (\S+):", asked, re.MULTILINE)]
    assert len(scores) == 2
    assert scores == sorted(scores)
    assert "{" not in asked.replace("{0, 1", "")


def test_missing_pieces_are_written_first_and_each_is_run() -> None:
    replies = [
        "Let me think.",
        block("def test(function):\n    broken\n").replace("broken", "assert function() >= 0"),
        block("def evaluate(function):\n    return function()"),
        block("def f():\n    return -4"),
        block("def f():\n    return 4"),
        block("def f():\n    return 5"),
    ]
    task = {"name": "f", "description": "Return much.", "generations": 1, "candidates": 1, "islands": 1}
    talk = Talk("funsearch", task, world(*replies))
    ended = talk.run()
    assert ended.failed is None
    assert ended.returned["score"] == 5.0
    assert "def test" in ended.returned["tests"]
    assert "def evaluate" in ended.returned["evaluator"]
    assert [program.score for program in evaluated_programs(talk)] == [4.0, 5.0]
    said_back = [text for role, text in talk.messages if role == "tool"]
    assert said_back[0] == "There is no code block in your message.\nNow write the test."
    assert said_back[3].startswith("The first version can't be used: test: AssertionError")
    conversations = {step.prompt.window[0] for step in talk.steps if isinstance(step, Sample)}
    assert conversations == {0, len(talk.messages) - 3}


def test_a_working_piece_is_not_replaced_by_a_broken_one() -> None:
    replies = [
        block("def test(function):\n    assert function() >= 0"),
        block("def test(function):\n    broken"),
        block("def f():\n    return 4"),
    ]
    task = {"name": "f", "description": "Return much.", "generations": 1, "candidates": 1, "islands": 1}
    usual = world(*replies)

    def answer(step: Step) -> Any:
        result = usual(step)
        if isinstance(step, Execute) and "broken" in step.source:
            return Executed(value=[{"success": False, "error": "test: NameError: name 'broken' is not defined"}])
        return result

    talk = Talk("funsearch", task, answer)
    talk.run()
    said_back = [text for role, text in talk.messages if role == "tool"]
    assert said_back[1].startswith("The test can't be used: test: NameError")
    assert all(text.endswith("Now write the evaluator.") for text in said_back[:3])


def test_a_bare_signature_is_not_a_first_version() -> None:
    task = {
        "name": "f", "description": "Return much.", "generations": 1, "candidates": 1, "islands": 1,
        "skeleton": 'def f() -> int:\n    """Much."""\n    raise NotImplementedError\n', "evaluator": EVALUATOR,
    }  # fmt: skip
    talk = Talk("funsearch", task, world(block("def f() -> int:\n    return 1")))
    assert talk.run().returned["score"] == 1.0
    assert "def f() -> int:" in talk.messages[0][1]
    assert talk.messages[0][1].endswith("Now write the first version.")


@pytest.mark.parametrize(
    ("skeleton", "stub"),
    [
        ("def f():\n\traise NotImplementedError\n", True),
        ("import re\ndef f():\n    'Much.'\n    raise NotImplementedError('yet')  # so\ndef g():\n    pass\n", True),
        ("def f() -> much more:\n\traise NotImplementedError\n", True),
        ("", False),
        ("def f(x=0):\n    if x == 0:\n        return 1\n    raise NotImplementedError\n", False),
        ("def f():\n    return g()\n\ndef g():\n    raise NotImplementedError\n", False),
        ("def g():\n    raise NotImplementedError\n", False),
        ("def f():\n    raise ValueError\n", False),
    ],
)
def test_a_stub_has_no_other_statement(skeleton: str, stub: bool) -> None:
    assert is_stub(skeleton, "f") == stub


def test_a_test_that_does_not_call_the_function_is_refused() -> None:
    def answer(step: Step) -> Any:
        if isinstance(step, Sample):
            return block("def test(function):\n    pass")
        return Executed(value=[{"success": True}])

    talk = Talk("funsearch", {"name": "f", "description": "Return much."}, answer)
    ended = talk.run()
    assert (ended.failed, ended.returned) == ("model", None)
    assert ended.reason == f"the model wrote no test that can be used in {MAX_PREPARATION_TICKS} messages"
    assert sum(isinstance(step, Sample) for step in talk.steps) == MAX_PREPARATION_TICKS
    assert "it passes, though the function is not written yet" in talk.messages[2][1]


def test_given_pieces_can_not_be_changed() -> None:
    replies = [block(TEST), block("def evaluate(function):\n    return 1"), block("def f():\n    return 1")]
    task = {"name": "f", "description": "Return much.", "tests": TEST, "generations": 1, "candidates": 1}
    talk = Talk("funsearch", task, world(*replies))
    assert talk.run().returned["tests"] == TEST
    assert talk.messages[2][1].startswith("The test is given and can't be changed.")


def test_reaching_the_wanted_score_ends_the_search() -> None:
    task = {**GIVEN, "score_to_reach": 7.0, "generations": 100, "islands": 1, "candidates": 1}
    replies = [block(f"def f():\n    return {number}") for number in range(1, 10)]
    assert Talk("funsearch", task, world(*replies)).run().returned["generation"] == 7


def test_a_first_version_without_a_score_fails_the_trace() -> None:
    talk = Talk("funsearch", {**GIVEN, "skeleton": "def f(:"}, world("Never asked."))
    ended = talk.run()
    assert ended.failed == "bootstrap"
    assert ended.reason == "the first version has no score: program: SyntaxError: invalid syntax"
    assert evaluated_programs(talk)[0].error is not None


def test_a_failing_model_keeps_the_best_program_so_far() -> None:
    usual = world(block("def f():\n    return 3"), block("def f():\n    return 2"))

    def answer(step: Step) -> Any:
        if isinstance(step, Sample) and step.prompt.window[0] > 6:
            raise ModelError("too long")
        return usual(step)

    ended = Talk("funsearch", {**GIVEN, "candidates": 1, "islands": 2}, answer).run()
    assert (ended.failed, ended.reason) == ("model", "too long")
    assert ended.returned["score"] == 3.0


def test_a_trial_that_fails_or_lies_gives_no_score() -> None:
    failure = Failure(type="TimeoutError", message="slow", traceback="", stage="process")
    for bad in (
        Executed(error=failure), Executed(value="9"), Executed(value=[]), Executed(value=[{"success": True}]),
    ):  # fmt: skip
        usual = world(block("def f():\n    return 3"))
        steps = iter(range(99))

        def answer(step: Step, bad: Any = bad, usual: Any = usual, steps: Any = steps) -> Any:
            return bad if isinstance(step, Execute) and next(steps) > 0 else usual(step)

        talk = Talk("funsearch", {**GIVEN, "generations": 1, "candidates": 1, "islands": 1}, answer)
        assert talk.run().returned["program"] == 0
        assert evaluated_programs(talk)[1].score is None
        assert evaluated_programs(talk)[1].error


def test_programs_are_evaluated_in_groups_that_fit_the_time_limit_of_an_operation() -> None:
    replies = [block(f"def f():\n    return {number}") for number in range(1, 12)]
    task = {**GIVEN, "generations": 1, "candidates": 10, "islands": 1, "seconds": 7.0}
    talk = Talk("funsearch", task, world(*replies))
    talk.run()
    groups = [len(json.loads(step.source)["programs"]) for step in talk.steps if isinstance(step, Execute)]
    assert groups == [1, 4, 4, 2]


def test_the_state_is_bounded() -> None:
    replies = [block(f"def f():\n    return {number}\n#" + "x" * 7900) for number in range(1, 200)]
    task = {**GIVEN, "generations": 6, "candidates": 16, "islands": 2}
    talk = Talk("funsearch", task, world(*replies))
    talk.run()
    assert max(len(json.dumps(state)) for state in talk.states) < 250_000


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\ndef f():\n    return 1\n```", "def f():\n    return 1\n"),
        ("```\ndef f():\n    return 1\n```\nIt uses\n```\nmath\n```", "def f():\n    return 1\n"),
        ("<think>```\ndef f(): return 0\n```</think>```py\ndef f():\n    return 2", "def f():\n    return 2\n"),
        ("```python\ndef g():\n    return 1\n```", "def g():\n    return 1\n"),
        ("<think>No end.\n```\ndef f(): 1\n```", ""),
        ("def f(): return 1", ""),
    ],
)
def test_the_program_is_the_last_code_block_that_defines_the_function(text: str, program: str) -> None:
    assert program_in(text, "f") == program


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "two words"}, "name 'two words' can't be a function's: give one like count_words"),
        ({"name": "class"}, "name 'class' can't be a function's: give one like count_words"),
        ({"description": " "}, "description is empty: say what the function is for"),
        ({"generations": 0}, "generations is 0: give 1 to 1,000"),
        ({"candidates": 65}, "candidates is 65: give 1 to 64"),
        ({"islands": 17}, "islands is 17: give 1 to 16"),
        ({"seconds": 0}, "seconds is 0.0: give 0.1 to 60"),
    ],
)
def test_the_error_for_a_wrong_task_says_what_to_do(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(message)):
        msgspec.convert(GIVEN | wrong, Task)


@pytest.mark.parametrize("name", ["bin_packing", "cap_set"])
def test_the_tasks_of_the_repository_are_documented_python(name: str) -> None:
    task = task_of((ROOT / "bootstraps" / "tasks" / f"{name}.json").read_text(), Task)
    for source in (task.skeleton, task.tests, task.evaluator):
        assert ast.get_docstring(ast.parse(source).body[-1]) or "def test" in source  # type: ignore[arg-type]
    assert json.loads(json.dumps(task.description)) == task.description
