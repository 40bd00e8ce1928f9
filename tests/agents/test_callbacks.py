"""Callbacks that add blocks and ask the model, in a whole installation: what they cause is in the trace."""

import ast

import pytest

from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.rendering import render_trace
from weavegen.trace.render import parse_trace

FILE = ROOT / "tests" / "bootstraps" / "asks_model.py"


@pytest.fixture(scope="module")
def installation(own_installation: Installation) -> Installation:
    return own_installation


@pytest.fixture(scope="module", params=["cascade", "tree"])
def trace(request: pytest.FixtureRequest, installation: Installation) -> int:
    search = ("--set", f"search={request.param}")
    [row] = installation.json("run", FILE, "--ticks", "2", "--seed", "4", *search)
    assert row["status"] == "ended", row
    return int(row["id"])


def test_what_callbacks_ask_for_is_recorded_in_order(installation: Installation, trace: int) -> None:
    rows = installation.sql("select type, body from blocks where trace_id = :t order by index", t=trace)
    types = [type for type, _ in rows]
    first = ["genesis", "bootstrap", "orientation", "return", "expectation", "return", "error", "error", "outcome"]
    assert types[: len(first)] == first
    bodies = [body for _, body in rows]
    assert bodies[3] == "The model has written block 2, of type orientation."
    assert bodies[6:8] == ["No fable is written yet.", "An evaluation said this."]
    assert '[2,"expectation",2]' in bodies[8]
    titles = "select title, body from blocks where trace_id = :t and type = 'observation' order by index limit 2"
    assert installation.sql(titles, t=trace) == [("Beginnings", "2"), ("A note of the view", "orientation")]


def test_a_block_that_a_callback_asks_for_is_sampled_and_scored_like_others(
    installation: Installation, trace: int
) -> None:
    query = "select question, candidate_id is not null, score is not null from blocks where trace_id = :t and index = 2"
    assert installation.sql(query, t=trace) == [("Is this a plan?", True, True)]
    [[ran]] = installation.sql("select ran from blocks where trace_id = :t and index = 5", t=trace)
    assert ran is True


def test_the_trace_is_valid(installation: Installation, trace: int) -> None:
    text = installation.cli("show", str(trace)).stdout
    ast.parse(text)
    assert render_trace(parse_trace(text)) == text
    assert installation.cli("audit").returncode == 0
