"""Assertions as grounded labels: the compiled code reports each result and behaves as before."""

import contextlib
import linecache
import traceback
from typing import Any

import pytest

from weavegen.box import grounded


def run(source: str) -> tuple[list[dict[str, Any]], BaseException | None]:
    labels = grounded.Labels()
    linecache.cache["<block>"] = (len(source), None, source.splitlines(keepends=True), "<block>")
    try:
        exec(grounded.compiled(source, "<block>"), {grounded.NAME: labels.ground})
    except Exception as error:  # noqa: BLE001 (whatever the source raises is what is tested)
        return labels.seen, error
    return labels.seen, None


def test_both_outcomes_are_labels() -> None:
    seen, error = run("x = 3\nassert x == 3, 'Is x three?'\nassert x == 4, f'Is {x} four?'")
    assert seen == [{"question": "Is x three?", "answer": True}, {"question": "Is 3 four?", "answer": False}]
    assert isinstance(error, AssertionError)
    assert str(error) == "Is 3 four?"


@pytest.mark.parametrize("source", ["assert True", "assert True, 'no question'", "assert True, 3", "x = 1"])
def test_an_assertion_without_a_question_is_not_a_label(source: str) -> None:
    assert run(source) == ([], None)


def test_a_message_that_raises_does_not_affect_an_assertion_that_holds() -> None:
    assert run("assert True, 1 / 0") == ([], None)
    assert isinstance(run("assert False, 1 / 0")[1], ZeroDivisionError)


@pytest.mark.parametrize(
    ("assertion", "left"),
    [
        ("assert True, next(lines)", ["a?", "b?"]),
        ("assert False, next(lines)", ["b?"]),
        ("assert False, f'Is it {next(lines)}?'", ["b?"]),
        ("assert True, (lines := [])", ["a?", "b?"]),
        ("assert True, [line for line in lines]", ["a?", "b?"]),
    ],
)
def test_a_message_with_effects_is_evaluated_once_and_only_on_failure(assertion: str, left: list[str]) -> None:
    space: dict[str, Any] = {grounded.NAME: grounded.Labels().ground}
    with contextlib.suppress(AssertionError):
        exec(grounded.compiled(f"lines = iter(['a?', 'b?'])\n{assertion}", "<block>"), space)
    assert list(space["lines"]) == left


def test_a_message_may_wait_for_a_coroutine() -> None:
    source = "async def why():\n    return 'So?'\nasync def check():\n    assert 0, await why()\nimport asyncio\n"
    seen, error = run(source + "asyncio.run(check())")
    assert (seen, str(error)) == ([], "So?")


def test_the_traceback_shows_the_source_that_the_model_wrote() -> None:
    source = "def f():\n    assert (\n        1 == 2\n    ), 'Is it?'\nf()"
    _, error = run(source)
    assert error is not None
    shown = "".join(traceback.format_exception(error))
    assert "line 2, in f" in shown or "line 3, in f" in shown
    assert "grounded" not in shown.rpartition("<block>")[2]


def test_labels_in_loops_are_limited() -> None:
    seen, error = run("for i in range(1000):\n    assert i >= 0, 'Is it?'")
    assert error is None
    assert len(seen) == grounded.MAX_LABELS


@pytest.mark.parametrize("source", ["assert (", "return 1", "assert x := 1, 'a?'"])
def test_syntax_errors_are_the_same_as_without_labels(source: str) -> None:
    with pytest.raises(SyntaxError) as plain:
        compile(source, "<block>", "exec")
    with pytest.raises(SyntaxError) as grounding:
        grounded.compiled(source, "<block>")
    assert str(plain.value) == str(grounding.value)
