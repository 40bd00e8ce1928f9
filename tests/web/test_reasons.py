"""Why candidates lost. Pure."""

import pytest

from weavegen.viewer.candidates import Candidate, rounds, tree
from weavegen.viewer.traces import Answer


def candidate(id: int, score: float, *, chosen: bool = False, round: int = 0, **more: object) -> Candidate:
    """A candidate with an answer, and the results of linting: compiles, held, viable."""
    linted = {"compiles": True, "viable": None, "held": {}, **more}
    depth, parent = linted.pop("depth", None), linted.pop("parent", None)
    answers = [Answer("selection", "Is it good?", 0.5, 0.5, score)]
    assert depth is None or isinstance(depth, int)
    assert parent is None or isinstance(parent, int)
    return Candidate(id, 0, round, depth, parent, id, "text" * (depth or 1), 9, "stop", chosen, answers, linted)


def test_the_draw_is_a_softmax_of_score_minus_penalties() -> None:
    block, other = candidate(1, 1.0, chosen=True), candidate(2, 2.0)
    penalised = candidate(3, 2.0, held={"shape": 1.0})
    [last] = rounds([block, other, penalised])
    assert [one.id for one in last.candidates] == [1, 2, 3]
    assert block.share == pytest.approx(penalised.share)
    assert other.share == pytest.approx(0.5761, abs=1e-4)  # e² / (e² + 2e)
    assert "drawn with a probability of 21.2%" in block.reason
    assert other.reason.startswith("Scored higher than the block, but was not drawn")
    assert "1: not exactly a function" in penalised.reason


def test_a_rejected_round_is_listed_after_the_last_one() -> None:
    early, block = candidate(1, -3.0), candidate(2, 1.0, chosen=True, round=1)
    last, first = rounds([early, block])
    assert (last.number, first.number) == (1, 0)
    assert early.reason == "The evaluator tends to no; no candidate of its round was good enough"
    assert early.share is None


def test_only_candidates_that_got_furthest_when_they_were_tried_are_in_the_draw() -> None:
    """One that does not compile got less far than one that failed. If none was tried, all are in the draw."""
    block, failed, illegal = candidate(1, 1.0, chosen=True), candidate(2, 3.0), candidate(3, 4.0, compiles=False)
    rounds([block, failed, illegal])
    assert None not in {one.share for one in (block, failed, illegal)}
    block, failed, illegal = candidate(1, 1.0, chosen=True), candidate(2, 3.0), candidate(3, 4.0, compiles=False)
    failed.trial = {"ran": False, "exception": "KeyError"}
    rounds([block, failed, illegal])
    assert [one.share for one in (block, failed, illegal)] == [1.0, None, None]
    for one in (failed, illegal):
        assert one.reason.endswith("another one got further when it was tried")
    failed, illegal = candidate(1, 3.0, chosen=True), candidate(2, 4.0, compiles=False)
    failed.trial = {"ran": False, "exception": "KeyError"}
    rounds([failed, illegal])
    assert [failed.share, illegal.share] == [1.0, None]


def test_a_later_round_that_got_less_far_is_listed_as_such() -> None:
    block, late = candidate(1, -3.0, chosen=True), candidate(2, 1.0, round=1)
    block.trial, late.trial = {"ran": True}, {"ran": False, "exception": "KeyError"}
    first, last = rounds([block, late])
    assert (first.number, last.number) == (0, 1)
    assert last.verdict == "No candidate got as far as the block when it was tried"
    assert late.reason == "Failed when it was tried (KeyError); another one got further when it was tried"


def test_a_candidate_that_ran_but_is_not_sound_got_less_far() -> None:
    block, caught = candidate(1, 1.0, chosen=True), candidate(2, 3.0)
    block.trial, caught.trial = {"ran": True, "sound": True}, {"ran": True, "sound": False}
    rounds([block, caught])
    assert [block.share, caught.share] == [1.0, None]


def test_not_compiling_is_the_first_reason() -> None:
    illegal = candidate(1, 6.0, compiles=False, held={"syntax": 2.0})
    rounds([illegal, candidate(2, 1.0, chosen=True)])
    assert illegal.reason.startswith("Does not compile")
    assert illegal.selection == pytest.approx(-2.0)  # a score above 4 is subtracted too


def test_unfinished_nodes_lose_only_for_errors_that_can_not_be_repaired() -> None:
    viable = candidate(1, 2.0, depth=1, viable=True, compiles=False, held={"syntax": 2.0, "shape": 1.0})
    dead = candidate(2, 2.0, depth=1, viable=False, compiles=False, held={"syntax": 2.0})
    leaf = candidate(3, 2.0, depth=2, parent=1, chosen=True)
    roots = tree([viable, dead, leaf])
    rounds([viable, dead, leaf])
    assert (viable.selection, dead.selection) == (2.0, 0.0)
    assert dead.reason.startswith("No continuation can compile")
    assert [(one.id, one.on_path) for one in roots] == [(1, True), (2, False)]
    assert leaf.own_text == "text"
    assert viable.reason == "The block continues it"
