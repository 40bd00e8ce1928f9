"""With the simulated model, bootstraps reach their end and return values of their schema."""

import ast
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.trace.render import parse_trace


@dataclass(frozen=True)
class Case:
    """A bootstrap, and what its traces return."""

    file: str
    returned: dict[str, type]
    """Types of some keys of the returned value."""
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    @property
    def name(self) -> str:
        return self.file.removesuffix(".py")


CASES = (
    Case(
        "haunted_mansion.py",
        {"words": int, "rooms": int, "quality": float, "is_ended": bool},
        {"words": 200, "rooms": 3},
    ),
    Case("mars_colony.py", {"entries": int, "stores": dict, "convincing": float}, {"entries": 3}),
    Case("book_report.py", {"words": int, "quotes": int, "are_quotes_real": bool}, {"words": 100, "quotes": 2}),
    Case("reading_comprehension.py", {"right": int, "questions": int}, {"questions": 3}),
)
"""One trace of each runs, with small parameters so that it takes few ticks."""
TICKS = 30
"""A limit that no case reaches."""


@pytest.fixture(scope="module")
def traces(installation: Installation) -> dict[str, tuple[int, str, Any]]:
    """Each case's trace: its number, why it ended, what it returned. All traces run in one job."""
    rows = [
        {"bootstrap": str(ROOT / "bootstraps" / case.file), "params": case.params, "seed": case.seed} for case in CASES
    ]
    jobs = installation.home / "bootstraps.jsonl"
    jobs.write_text("\n".join(map(json.dumps, rows)))
    job = installation.json("enqueue", "--from", jobs, "--ticks", str(TICKS))["job"]
    installation.wait(job)
    found = installation.sql(
        "select id, ended_because, returned from traces where job_id = :job order by number", job=job
    )
    return {case.name: (id, why, returned) for case, (id, why, returned) in zip(CASES, found, strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_trace_returns_to_its_caller(
    installation: Installation, traces: dict[str, tuple[int, str, Any]], case: Case
) -> None:
    id, why, returned = traces[case.name]
    assert why == "returned"
    assert {key: type(returned.get(key)) for key in case.returned} == case.returned
    text = installation.cli("show", str(id)).stdout
    ast.parse(text)
    assert render_trace(parse_trace(text)) == text
