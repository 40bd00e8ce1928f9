"""The table of weave-agent's names in docs/weave.md: each test that it names is there, and speaks of the name."""

import re

import pytest

from tests.support import ROOT

TABLE = (ROOT / "docs" / "weave.md").read_text().partition("| name | here | test |")[2]
ROWS = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in TABLE.splitlines() if row.startswith("| ")]


@pytest.mark.parametrize(("names", "here", "tests"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_row_names_code_and_tests_that_have_the_names(names: str, here: str, tests: str) -> None:
    files = re.findall(r"`(\S+\.py)`", tests)
    assert files or here.startswith("none: "), "Is a name missing without a reason?"
    assert all((ROOT / file).exists() for file in re.findall(r"`(\w\S+\.py)`", here))
    said = "\n".join((ROOT / file).read_text() for file in files)
    for name in re.findall(r"`(?:[\w.]*\.)?(\w+)`", names) if files else ():
        assert re.search(rf"\b{name}\b", said), f"Is {name} tested there?"
