"""How `make check` handles pip-audit's results."""

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
def test_only_a_known_vulnerability_fails_the_check(dependencies: list[object], code: int, said: str) -> None:
    found, text = judge(json.dumps({"dependencies": dependencies, "fixes": []}), "")
    assert found == code
    assert said in text
    assert ("no known" in text) == (WELL in dependencies and BAD not in dependencies)


def test_an_unreachable_service_is_reported_but_does_not_fail_the_check() -> None:
    code, said = judge("", "Traceback ...\nConnectionError: no such host\n")
    assert code == 0
    assert "nothing could be looked up" in said
    assert "no such host" in said
