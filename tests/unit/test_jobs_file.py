"""Rows of a jobs file: seeds of repetitions, and what a row may not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from weavegen.engine.enqueueing import rows, task_orders
from weavegen.errors import UsageError
from weavegen.kernel.seeds import derive_seed
from weavegen.store.jobs import Order


def read(folder: Path, *values: dict[str, Any]) -> list[Order]:
    file = folder / "jobs.jsonl"
    file.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return rows(file)


def test_each_repetition_of_a_row_has_a_seed_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "number.py").write_text("self.add_action('a', a)")
    orders = read(tmp_path, {"bootstrap": "number.py", "n": 10, "seed": 7}, {"task": "Count.", "n": 2, "seed": 7})
    seeds = [order.seed for order in orders]
    assert seeds[:10] == [derive_seed(7, "trace", number) for number in range(1, 11)]
    assert seeds[10:] == seeds[:2]
    assert len(set(seeds)) == 10


def test_a_single_row_keeps_its_seed_and_none_is_derived_from_the_jobs(tmp_path: Path) -> None:
    orders = read(tmp_path, {"task": "Count.", "seed": 7}, {"task": "Count.", "n": 3})
    assert [order.seed for order in orders] == [7, None, None, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"task": "Count.", "params": {"most": 3}}, "line 1: a task takes no params"),
        ({"task": "Count.", "n": 2, "seed": 2**64}, "more than 64 bits"),
    ],
)
def test_what_would_have_no_effect_is_refused(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read(tmp_path, row)


@pytest.mark.parametrize("task", ["Count files.", {"task": "Count files.", "tools": "def f(): ..."}])
def test_a_single_task_is_not_taken_for_a_list_of_tasks(task: Any) -> None:
    """Its letters or keys would be tasks."""
    with pytest.raises(UsageError, match=r"give a list of tasks"):
        task_orders(task)
