"""`make loop` with a few games instead of hundreds."""

import io
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench import loop
from bench.installation import home
from tests.support.trl import PYTHON
from weavegen.evaluator.evaluation import Evaluation, Measure, share
from weavegen.training.rounds import Loop, Order, Round

NOTHING = Measure(math.nan, math.nan, math.nan, 0)
WIDE = 400
"""Terminal columns: wider than the table."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that boxes can read, unlike tmp_path."""
    with home() as made:
        yield made


@pytest.mark.timeout(1800)
def test_the_loop_runs_writes_its_table_and_goes_on(
    trl_environ: dict[str, str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in trl_environ.items():
        monkeypatch.setenv(name, value)
    readme = tmp_path / "README.md"
    readme.write_text(f"Before.\n{loop.BEGIN}an older table\n{loop.END}After.\n")
    small: dict[str, object] = {"GAMES": 8, "MEASURED": 2, "CONTROL_MEASURED": 2, "ROUNDS": 1}
    small |= {"PYTHON": str(PYTHON), "README": readme}
    small["SURE"] = 0.9  # with so few games there is only one win
    small |= {"FOLDER": folder, "PICTURE": tmp_path / "loop.svg"}
    for constant, changed in small.items():
        monkeypatch.setattr(loop, constant, changed)
    monkeypatch.setattr(loop, "TUNING", replace(loop.TUNING, epochs=1, most=16))
    said = io.StringIO()
    figures = loop.run(Console(file=said, width=WIDE))
    assert [one.what for one in figures][-1] == "the whole"
    assert all(math.isfinite(one.value) for one in figures), figures
    text = readme.read_text()
    assert text.startswith(f"Before.\n{loop.BEGIN}")
    assert text.endswith(f"{loop.END}After.\n")
    assert "an older table" not in text
    [heading, _, *rows] = [line for line in text.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in heading.split("|")] == ["", "", "weak model", "round 1", "control", ""]
    for row in rows:
        name = row.split("|")[1].strip()
        assert name in said.getvalue()
    assert any(row.startswith("| success, tictactoe.py |") for row in rows)
    assert any(row.startswith("| unaided, tictactoe.py |") for row in rows)
    assert (tmp_path / "loop.svg").read_text().startswith("<svg")
    began = time.monotonic()
    assert loop.run(Console(file=io.StringIO(), width=WIDE)) == figures, "It is over, so nothing is measured anew."
    assert time.monotonic() - began < 120


@pytest.mark.parametrize(
    ("aucs", "lost"), [((0.7, 0.8, 0.69), 0.01), ((0.7, 0.8), 0.0), ((0.7, 0.8, None), 1.0), ((None, 0.8), 1.0)]
)
def test_a_round_whose_auc_is_unknown_does_not_meet_the_bar(aucs: tuple[float | None, ...], lost: float) -> None:
    evaluation = Evaluation("model", {"a.py": share([True])}, NOTHING, NOTHING, NOTHING, NOTHING, None)
    rounds = [Round(number=number, evaluation=evaluation, auc=auc) for number, auc in enumerate(aucs)]
    order = Order(
        files=[], params={}, settings={}, writing={}, traces=1, held_out=1, seed=0, where=[], tune=loop.TUNING,
    )  # fmt: skip
    told = loop.figures([loop.Run(Loop(name="loop", order=order, rounds=rounds), evaluation, 1.0)])
    [bar] = [one for one in told if one.what.startswith("AUC")]
    assert bar.value == pytest.approx(lost)
    assert bar.met == (lost <= loop.AUC_LOSS)
