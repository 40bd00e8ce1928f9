"""Exercises for nano: they never run out, always require a change, and are judged by the saved file."""

import difflib
import shutil
from itertools import islice
from random import Random

import pytest

from bootstraps import edit_exercises
from tests.support.live_task import live_task

needs_nano = pytest.mark.skipif(shutil.which("nano") is None, reason="nano is not installed")
WRITE = "open(FILE, 'w').write('\\n'.join(exercise().after) + '\\n')"


@needs_nano
def test_exercises_are_judged_by_the_saved_file() -> None:
    with live_task("nano_exercises.py", exercises=3, difficulty=4) as task:
        assert task.graded() == {"file_is_right": True, "none_is_wrong": True, "all_are_handed_in": False}
        assert task.act("return hand_in(self)") is True
        assert task.graded() == {"file_is_right": False, "none_is_wrong": True, "all_are_handed_in": False}
        assert "2. " in task.views()["Exercise"]
        task.act(WRITE)
        assert task.graded()["file_is_right"] is True
        assert task.act(f"hand_in(self)\n{WRITE}\nreturn hand_in(self)") is True
        assert task.graded() == {"file_is_right": True, "none_is_wrong": True, "all_are_handed_in": True}
        task.act("self.return_to_caller({'right': sum(marks()), 'exercises': len(handed_in)})")


@needs_nano
def test_an_exercise_can_be_done_with_the_keys_of_nano() -> None:
    with live_task("nano_exercises.py", exercises=3, difficulty=5) as task:
        task.act("hand_in(self)")
        before, after = task.act("return [list(exercise().before), list(exercise().after)]")
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        keys: list[str] = []
        for tag, first, last, new_first, new_last in reversed(matcher.get_opcodes()):
            if tag != "equal":
                typed = [key for line in after[new_first:new_last] for key in (line, "Enter")]
                keys += ["C-_", str(first + 1), "Enter", *(typed[:-1] if first == len(before) else typed)]
                keys += ["C-k"] * (last - first)
        task.act(f"self.tools['nano'].send_commands({[*keys, 'C-o', 'Enter']!r})")
        assert task.graded() == {"file_is_right": True, "none_is_wrong": True, "all_are_handed_in": False}
        assert task.act("return hand_in(self)") is True


@needs_nano
def test_the_first_exercise_is_done_even_at_the_end_of_the_file() -> None:
    lines = {seed: len(first_exercise(seed).before) for seed in range(99)}
    seed = next(seed for seed in lines if f" line {lines[seed]}: " in first_exercise(seed).steps[0])
    with live_task("nano_exercises.py", seed, difficulty=1) as task:
        assert task.graded()["file_is_right"] is True


def first_exercise(seed: int) -> edit_exercises.Exercise:
    """The exercise with which a trace of this seed begins, with difficulty 1."""
    return edit_exercises.make(Random(seed).getrandbits(64), 0, 1)


@needs_nano
def test_a_wrong_file_stays_wrong() -> None:
    with live_task("nano_exercises.py", exercises=2) as task:
        task.act("hand_in(self)")
        assert task.graded()["none_is_wrong"] is True
        assert task.act("return hand_in(self)") is False
        assert task.graded() == {"file_is_right": False, "none_is_wrong": False, "all_are_handed_in": True}
        task.act(f"handed_in[1] = '\\n'.join(exercise().after) + '\\n'\n{WRITE}")
        assert task.graded()["none_is_wrong"] is False, "what was handed in can't be taken back"


def test_exercises_never_run_out_and_always_change_something() -> None:
    for difficulty in range(1, 6):
        drawn = list(islice(edit_exercises.exercises(3, difficulty), 300))
        assert drawn == list(islice(edit_exercises.exercises(3, difficulty), 300))
        assert len({(one.before, one.steps) for one in drawn}) > 290
        for one in drawn:
            assert one.before != one.after
            assert max(map(len, (*one.before, *one.after))) < 80
            assert all(step.endswith(".") or ": " in step for step in one.steps)
    assert len(edit_exercises.make(3, 5, 5).steps) >= 3
