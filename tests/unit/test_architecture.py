"""ARCHITECTURE.md speaks of what there is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::|`)", TEXT))))
def test_the_tests_it_names_exist(file: str) -> None:
    source = (ROOT / file).read_text()
    for row in ROWS:
        if file in row:
            # Names after the first stand for themselves: `::test_more`.
            names = re.findall(rf"{re.escape(file)}::(\w+)`(?:, `::(\w+)`)*", row)
            assert names, row
            for name in {name for group in names for name in group if name}:
                assert f"def {name}(" in source, name


def test_the_files_it_names_exist() -> None:
    there = {
        path.name for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in (".venv", ".venv-vllm")
    }
    named = set(re.findall(r"[`/]([a-z_]+\.py)\b", TEXT))
    assert len(named) > 40
    assert named <= there
