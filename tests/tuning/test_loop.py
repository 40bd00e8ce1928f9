"""`make loop` with a few games instead of hundreds."""

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bench import loop
from tests.support.trl import PYTHON

WIDE = 400
"""Terminal columns: wider than the table."""


@pytest.mark.timeout(1800)
def test_the_loop_runs_and_writes_its_table(
    trl_environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in trl_environ.items():
        monkeypatch.setenv(name, value)
    readme = tmp_path / "README.md"
    readme.write_text(f"Before.\n{loop.BEGIN}an older table\n{loop.END}After.\n")
    small: dict[str, object] = {"GAMES": 8, "MEASURED": 2, "ROUNDS": 1, "PYTHON": str(PYTHON), "README": readme}
    small["SURE"] = 0.9  # with so few games there is only one win
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
