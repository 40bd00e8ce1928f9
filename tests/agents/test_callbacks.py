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


def test_ticks_of_a_plan_are_imagined_and_the_run_goes_on_after_them(installation: Installation) -> None:
    plans = FILE.with_name("plans.py")
    [row] = installation.json("run", plans, "--ticks", "3", "--seed", "4", "--set", "search=execute")
    assert row["status"] == "ended", row
    observed = "select tick, body = '1' from blocks where trace_id = :t and type = 'observation' order by index"
    assert installation.sql(observed, t=row["id"]) == [(1, False), (2, False), (3, True)]
    tagged = "select distinct tick, tags @> '{imagined}' from blocks where trace_id = :t order by tick"
    assert installation.sql(tagged, t=row["id"]) == [(0, False), (1, True), (2, True), (3, False)]
    ticks = "select number, reward is not null from ticks where trace_id = :t order by number"
    assert installation.sql(ticks, t=row["id"]) == [(0, True), (1, False), (2, False), (3, True)]
    executed = "select distinct tick from blocks where trace_id = :t and ran is not null order by tick"
    assert installation.sql(executed, t=row["id"]) == [(0,), (3,)]
    tried = "select count(*) from steps where trace_id = :t and tick in (1, 2) and request->>'op' <> 'begin'"
    assert installation.sql(tried, t=row["id"]) == [(0,)]
    text = installation.cli("show", str(row["id"])).stdout
    ast.parse(text)
    assert render_trace(parse_trace(text)) == text
    assert installation.cli("audit").returncode == 0
