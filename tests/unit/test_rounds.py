"""The rounds of `weavegen improve`: which model is kept, when the loop stops, what is on the disk."""

import math
from pathlib import Path

import pytest

from weavegen.errors import UsageError
from weavegen.evaluator.evaluation import Evaluation, Measure, share
from weavegen.training import rounds
from weavegen.training.plan import TunePlan
from weavegen.training.rounds import Loop, Order, Round

NOTHING = Measure(math.nan, math.nan, math.nan, 0)


def measured(**files: tuple[int, int]) -> Evaluation:
    """An evaluation with these numbers of successes and traces, by file."""
    success = {name: share([n < won for n in range(of)]) for name, (won, of) in files.items()}
    return Evaluation("model", success, NOTHING, NOTHING, NOTHING, NOTHING, None)


def order(**changes: object) -> Order:
    values = {
        "files": ["a.py"], "params": {}, "settings": {"rounds": (1, 4)}, "writing": {}, "traces": 4, "held_out": 4,
        "seed": 1, "where": [], "tune": TunePlan(model="base", data="", out=""),
    }  # fmt: skip
    return Order(**(values | changes))


def loop_of(*won: int, of: int = 80) -> Loop:
    """A loop whose rounds had these numbers of successes."""
    loop = Loop(name="loop", order=order())
    for number, count in enumerate(won):
        loop.rounds.append(Round(number=number, evaluation=measured(a=(count, of))))
        loop.judge(loop.rounds[-1])
    return loop


@pytest.mark.parametrize(
    ("won", "best"),
    [
        ((40,), 0),
        ((40, 60), 1),
        ((40, 60, 59), 1),
        ((40, 60, 60), 2),
        ((40, 39, 20, 0), 0),
        ((40, 30, 35, 41, 38), 3),
        ((0, 0), 1),
        ((80, 79), 0),
    ],
)
def test_a_worse_model_never_replaces_the_best(won: tuple[int, ...], best: int) -> None:
    assert loop_of(*won).best().number == best


def test_of_equal_shares_the_surer_one_is_better() -> None:
    loop = loop_of(60)
    loop.rounds.append(Round(number=1, evaluation=measured(a=(6, 8))))
    loop.judge(loop.rounds[-1])
    assert loop.best().number == 0


def test_without_evaluations_the_first_model_stays() -> None:
    loop = loop_of(0, 0, of=0)
    assert loop.best().number == 0


def test_files_are_counted_together() -> None:
    round = Round(number=0, evaluation=measured(a=(3, 10), b=(7, 30), c=(0, 0)))
    assert (rounds.success(round).value, rounds.success(round).of) == (0.25, 40)


def test_a_round_that_is_judged_again_is_judged_alike() -> None:
    loop = loop_of(40, 60)
    loop.judge(loop.rounds[1])
    assert [round.best for round in loop.rounds] == [True, True]


def test_it_stops_after_its_rounds_or_its_patience() -> None:
    assert loop_of(40).over(5, 2) is None
    assert loop_of(40, 60, 50).over(5, 2) is None
    assert "2 rounds in a row have not improved on round 1" in str(loop_of(40, 60, 50, 59).over(5, 2))
    assert loop_of(40, 60, 50, 70).over(5, 2) is None
    assert loop_of(40, 60, 50).over(2, 9) == "2 rounds are done"


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert rounds.load(tmp_path) is None
    loop = loop_of(40, 60)
    loop.rounds[1].corrections = {"Will it?": (0.5, -1.0)}
    loop.rounds[1].jobs = {"write": 3}
    rounds.save(tmp_path, loop)
    again = rounds.load(tmp_path)
    assert again is not None
    assert again.best().number == 1
    assert again.rounds[1].corrections == {"Will it?": (0.5, -1.0)}
    assert again.rounds[1].jobs == {"write": 3}
    assert math.isnan(again.rounds[0].evaluation.legal.value)
    assert rounds.differences(again.order, loop.order) == []
    other = order(traces=5, tune=TunePlan(model="other", data="", out=""))
    assert rounds.differences(again.order, other) == ["model", "traces"]
    assert [path.name for path in tmp_path.iterdir()] == [rounds.STATE]


@pytest.mark.parametrize("text", ["{", "[]", '{"name": 1}', "\x00"])
def test_a_damaged_state_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / rounds.STATE).write_text(text)
    with pytest.raises(UsageError, match=r"state.json can't be read .*give another --out"):
        rounds.load(tmp_path)
