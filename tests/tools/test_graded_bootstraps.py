"""Bootstraps with protected evaluations: their first tick, their seeds and their parameters."""

import json
import shutil
from typing import Any

import pytest

from tests.support.live_task import live_task

FILES: dict[str, dict[str, Any]] = {
    "tictactoe_tournament.py": {"rounds": 1, "opponents": ["random", "basic"]},
    "nano_exercises.py": {"exercises": 2, "difficulty": 3},
    "citations.py": {"claims": 12, "sources": 5},
    "web_framework.py": {"chapter": "forms"},
    "tool_writing.py": {},
}


@pytest.mark.parametrize("file", FILES)
def test_the_first_tick_runs_and_equal_seeds_give_equal_tasks(file: str) -> None:
    if file == "nano_exercises.py" and shutil.which("nano") is None:
        pytest.skip("nano is not installed")
    shown = []
    for seed in (7, 7, 12):
        with live_task(file, seed, **FILES[file]) as task:
            assert task.first.assertions
            assert all(assertion.answer for assertion in task.first.assertions)
            assert task.tick_evaluations() == [True]
            [main] = task.first.subagents
            assert main.name == "main"
            assert not main.completed
            shown.append(json.dumps(task.views()))
    assert shown[0] == shown[1] != shown[2]


def test_a_file_that_is_no_text_is_wrong() -> None:
    """A grader that fails would leave the reward out."""
    if shutil.which("nano") is None:
        pytest.skip("nano is not installed")
    with live_task("nano_practice.py", text="ferry") as task:
        task.act("open(FILE, 'wb').write(b'\\xff\\xfe\\n')")
        assert task.graded() == {"file_is_equal": False}
        assert "Differences" in task.views()
        task.act("open(FILE, 'w').write('\\n'.join(target) + '\\n')")
        assert task.graded() == {"file_is_equal": True}


@pytest.mark.parametrize(
    ("file", "params", "complaint"),
    [
        ("tictactoe_tournament.py", {"opponents": ["chess"]}, "give a list of some of random, eager"),
        ("tictactoe_tournament.py", {"rounds": 9}, "rounds is 9: give 1 to 6"),
        ("nano_exercises.py", {"difficulty": 6}, "difficulty is 6: give 1 to 5"),
        ("citations.py", {"claims": 2}, "claims is 2: give 4 to 30"),
        ("web_framework.py", {"chapter": "cookies"}, "chapter is 'cookies': give routes or"),
        ("tool_writing.py", {"tool": "hammer"}, "tool is 'hammer': give any or dates"),
    ],
)
def test_wrong_parameters_are_refused(file: str, params: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint), live_task(file, **params):
        pass
