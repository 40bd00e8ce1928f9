"""Trials of programs: the filter of system calls allows only listed calls, and data arrives unchanged."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weavegen.box import confine, trial

plain: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(st.integers() | st.text(), max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=4)
    ),
    max_leaves=12,
)


def answer(machine: str, architecture: int, number: int) -> int:
    """The decision of a filter on a system call, found by executing its three kinds of instructions."""
    lines = list(struct.iter_unpack("=HBBI", confine.filter_program(machine)))
    value, at = 0, 0
    while True:
        code, if_so, if_not, operand = lines[at]
        at += 1
        if code == confine.RETURN:
            return int(operand)
        if code == confine.LOAD:
            value = {0: number, 4: architecture}[operand]
        else:
            assert code == confine.EQUAL
            at += if_so if value == operand else if_not


@pytest.mark.parametrize("machine", confine.ARCHITECTURES)
def test_only_system_calls_for_computing_are_allowed(machine: str) -> None:
    which, architecture = confine.ARCHITECTURES[machine]
    let_through = {number for number in range(600) if answer(machine, architecture, number) == confine.ALLOW}
    assert let_through == {numbers[which] for numbers in confine.ALLOWED.values()}
    assert answer(machine, architecture, 0x40000000) == confine.REFUSE
    assert all(answer(machine, 0x40000003, number) == confine.REFUSE for number in range(600))


@given(plain)
def test_plain_data_arrives_unchanged(value: Any) -> None:
    assert repr(trial.unpack(trial.pack(value))) == repr(value) or trial.unpack(trial.pack(value)) == value


@pytest.mark.parametrize("value", [object(), len, iter([]), range(3), 1j, [{"a": object()}]])
def test_values_that_are_not_plain_data_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="can't be passed: use None, bool, int"):
        trial.pack(value)


@pytest.mark.parametrize("value", [{"x": []}, {}, {"t": 1}, {"b": "no"}, {"d": [1]}, {"s": [[1]]}, {"t": [], "s": []}])
def test_data_that_was_not_packed_is_refused(value: Any) -> None:
    with pytest.raises((LookupError, TypeError, ValueError)):
        trial.unpack(value)


@pytest.mark.parametrize(
    ("value", "score"), [(3, 3.0), (True, 1.0), ([1, 2], 1.5), ((0.1,) * 10, 0.1), (2**60, float(2**60))]
)
def test_a_score_is_the_mean_of_the_instances(value: object, score: float) -> None:
    assert trial.parse_scores(value)[0] == score


@pytest.mark.parametrize("value", [None, "much", [], [1.0] * 101, float("inf"), [1, float("nan")], {}, [[1]]])
def test_values_that_are_not_scores_are_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        trial.parse_scores(value)


@pytest.mark.parametrize("count", [0, 17])
def test_an_operation_takes_a_limited_number_of_programs(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} programs: give 1 to 16"):
        trial.evaluate_programs('{"programs": [' + ", ".join(['""'] * count) + "]}", 1.0)


def test_dataclasses_may_have_texts_as_annotations() -> None:
    """In a program, its test and its evaluator."""
    counted = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass\n"
        "class Count:\n"
        "    number: int\n"
        "def {}:\n"
    )
    request = {
        "name": "f", "seconds": 5, "programs": [counted.format("f(x)") + "    return Count(x).number + 1\n"],
        "tests": counted.format("test(function)") + "    assert Count(function(1)) == Count(2)\n",
        "evaluator": counted.format("evaluate(function)") + "    return Count(function(2)).number\n",
    }  # fmt: skip
    [verdict] = trial.evaluate_programs(json.dumps(request), 20.0)
    assert verdict == {"success": True, "score": 3.0, "scores": [3.0], "error": None}
