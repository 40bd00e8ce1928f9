"""Drills: ticks that the simulation's policies write for made-up observations."""

import random
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pretraining import drills, prepare
from pretraining.prepare import Plan
from simulation.policies import board
from tests.support.game_traces import trace
from weavegen.errors import UsageError
from weavegen.linting.lint import syntax_error
from weavegen.trace.blocks import Block, BlockType

TICK = [BlockType.ORIENTATION, BlockType.ACTION, BlockType.EXPECTATION, BlockType.EVALUATION]


def written(tick: list[Block], type: BlockType) -> str:
    return next(block.body for block in tick if block.type is type)


@pytest.fixture(scope="module")
def ticks() -> dict[str, list[list[Block]]]:
    return {task: drills.make({task: 60}, random.Random(5)) for task in drills.SCENES}


def test_a_drill_is_a_whole_tick_of_legal_python(ticks: dict[str, list[list[Block]]]) -> None:
    for some in ticks.values():
        for tick in some:
            assert [block.type for block in tick][-4:] == TICK
            assert tick[0].type is BlockType.TASK_REMINDER
            assert [syntax_error(block.body) for block in tick[-4:]] == [None] * 4


def test_sums_are_right_and_a_quarter_of_all_pairs_is_left_out(ticks: dict[str, list[list[Block]]]) -> None:
    asked = 0
    for tick in ticks["sums"]:
        if found := re.search(r"^(\d+) \+ (\d+) = \?", written(tick, BlockType.OBSERVATION), re.MULTILINE):
            a, b = int(found[1]), int(found[2])
            assert f"answer({a + b})" in written(tick, BlockType.ACTION)
            assert not drills.is_left_out((a, b))
            asked += 1
    assert asked > 30
    assert sum(drills.is_left_out((a, b)) for a in range(100) for b in range(100)) == 2500


def test_the_cell_that_is_taken_is_the_best_one(ticks: dict[str, list[list[Block]]]) -> None:
    moves = 0
    for tick in ticks["tictactoe"]:
        shown = written(tick, BlockType.OBSERVATION)
        if cell := re.search(r"cell = (\d)", written(tick, BlockType.ACTION)):
            cells = "".join(re.findall(r"\d ([XO-])", shown)).replace("-", board.EMPTY)
            me = re.search(r"I play ([XO])", shown)
            assert me is not None
            assert int(cell[1]) == board.ranked(cells, me[1])[0][1]
            moves += 1
    assert moves > 20


def test_the_policies_make_mistakes_again_afterwards(ticks: dict[str, list[list[Block]]]) -> None:
    assert ticks
    assert all(drills.FLAWS)


def test_near_drills_are_orientations_behind_the_view_that_they_read() -> None:
    for tick in drills.make(dict.fromkeys(drills.SCENES, 20), random.Random(5), near=True):
        types = [block.type for block in tick]
        assert types[-2:] == [BlockType.OBSERVATION, BlockType.ORIENTATION]
        assert not any((block.title or "").startswith("Weave") for block in tick)


def test_what_is_prepared_can_be_read_again(tmp_path: Path) -> None:
    (tmp_path / "traces" / "data").mkdir(parents=True)
    pq.write_table(pa.table({"text": [trace() for _ in range(40)]}), tmp_path / "traces" / "data" / "train.parquet")
    few = dict.fromkeys(drills.SCENES, 12)
    plan = Plan(vocabulary=1500, epochs=2, close_ups=few, drills=few, held_out=0.1)
    made = prepare.prepare(tmp_path / "traces", plan, lambda line: None)
    made.save(tmp_path / "prepared.npz")
    read = prepare.load(tmp_path / "prepared.npz")
    assert read.plan == plan
    assert read.tokenizer.to_str() == made.tokenizer.to_str()
    for name in prepare.PARTS:
        before, after = getattr(made, name), getattr(read, name)
        assert len(before) == len(after) > 0, name
        for one, other in zip(before, after, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert all(len(ids) <= plan.window for ids, _ in made.windows)
    assert all(len(ids) <= plan.window // 2 for ids, _ in made.close_ups)
    assert len(made.asked) == prepare.ASKED * len(few)


def test_a_folder_that_is_no_export_of_texts_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="weavegen export --format text"):
        prepare.read_texts(tmp_path)
