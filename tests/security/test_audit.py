"""What `make check` makes of pip-audit's answers."""

import json

import pytest

from tests.security.audit import judge

WELL = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"], "aliases": []}]}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found"}


@pytest.mark.parametrize(
    ("dependencies", "code", "said"),
    [
        ([WELL], 0, "no known vulnerability in 1 of 1"),
        ([WELL, BAD], 1, "b 2: PYSEC-1, mended in 3"),
        ([UNKNOWN, BAD], 1, "1 of 2 could not be looked up"),
        ([UNKNOWN, WELL], 0, "1 of 2 could not be looked up"),
        ([UNKNOWN, UNKNOWN], 0, "2 of 2 could not be looked up, so nothing is known"),
    ],
)
def test_only_a_known_vulnerability_fails(dependencies: list[object], code: int, said: str) -> None:
    found, text = judge(json.dumps({"dependencies": dependencies, "fixes": []}), "")
    assert found == code
    assert said in text
    assert ("no known" in text) == (WELL in dependencies and BAD not in dependencies)


def test_a_service_that_can_not_be_reached_fails_nothing_and_is_said() -> None:
    code, said = judge("", "Traceback ...\nConnectionError: no such host\n")
    assert code == 0
    assert "nothing could be looked up" in said
    assert "no such host" in said
