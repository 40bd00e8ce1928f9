"""The simulation that improves functions: the same again for equal seeds, flawed at some rate, blind to scores."""

import ast
import json
import re
from pathlib import Path

import pytest

from simulation.policies import dialogue
from simulation.policies.dialogue import Conversation
from weavegen.agents.funsearch import Task, code_blocks, prompt_of, task_of
from weavegen.agents.islands import Program

TASKS = [task for name in ("bin_packing", "cap_set")
         if (task := task_of((Path("bootstraps/tasks") / f"{name}.json").read_text(), Task))]  # fmt: skip


def conversation(task: Task) -> Conversation:
    return Conversation([("user", prompt_of(task, [Program(0, 0, 1.0, (1.0,), task.skeleton)]))])


def written(task: Task, count: int) -> list[str]:
    return [dialogue.write(conversation(task), seed=1, number=number) for number in range(count)]


@pytest.mark.parametrize("task", TASKS)
def test_most_versions_are_new_functions_and_some_are_broken(task: Task) -> None:
    sources, broken = set(), 0
    for text in written(task, 200):
        try:
            [source] = code_blocks(text.removesuffix("<|im_end|>"))
            [function] = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
            assert function.name == task.name
            sources.add(source)
        except (SyntaxError, ValueError):
            broken += 1
    assert len(sources) > 100
    assert 5 <= broken <= 40


def test_equal_seeds_give_equal_texts() -> None:
    assert written(TASKS[0], 20) == written(TASKS[0], 20)
    assert len(set(written(TASKS[0], 20))) > 10


@pytest.mark.parametrize("piece", ["test", "evaluator", "first version"])
def test_it_writes_the_piece_that_is_asked_for(piece: str) -> None:
    task = (
        "A search will look for the best version of a Python function. You prepare it. The function is called "
        "total.\n\n```python\ndef total(numbers: list[int], start: int = 0) -> int:\n    ...\n```\n"
        f"Now write the {piece}."
    )
    defined = {"test": "test", "evaluator": "evaluate", "first version": "total"}[piece]
    texts = [dialogue.write(Conversation([("user", task)]), seed=1, number=number) for number in range(40)]
    right = [text for text in texts if re.search(rf"^def {defined}\(.*\)(?: -> int)?:$", text, re.MULTILINE)]
    assert 20 <= len(right) < 40


def test_the_tasks_are_legal_python_that_says_what_it_is() -> None:
    for task in TASKS:
        for source in (task.skeleton, task.tests, task.evaluator):
            assert ast.get_docstring(ast.parse(source).body[-1]) or "def test" in source  # type: ignore[arg-type]
        assert json.loads(json.dumps(task.description)) == task.description
