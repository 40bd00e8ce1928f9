"""Test modules do not import each other: shared code is in tests/support/."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

TIERS = {"tests.support", "tests.chaos", "tests.compat"}
"""Packages that any test module may import from. The last two are also programs."""
FOLDERS = ("tests", "bench", "simulation", "weavegen_nano")


def imported(file: Path) -> Iterator[str]:
    """Full names of everything that a file imports from `tests`."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_a_test_module_or_another_tier() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    wrong = []
    for file in files:
        if file.relative_to(ROOT).parts[1] in ("grammars", "bootstraps"):  # data, in part broken on purpose
            continue
        own = ".".join(file.relative_to(ROOT).parts[:2])
        for name in imported(file):
            parts = name.split(".")
            if parts[0] != "tests":
                continue
            is_test = any(part == "conftest" or part.startswith("test_") for part in parts)
            if is_test or ".".join(parts[:2]) not in TIERS | {own}:
                wrong.append(f"{file.relative_to(ROOT)} imports {name}")
    assert wrong == []
