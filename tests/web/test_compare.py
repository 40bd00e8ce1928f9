"""Two traces side by side, and two jobs by their measures."""

import math
import re

import pytest
from playwright.sync_api import Page, expect

from tests.web.places import rejected
from tests.web.serving import ask, serving
from tests.web.traces import HOSTILE, action, add_blocks, new_trace
from weavegen import sql
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.evaluator.evaluation import share
from weavegen.store.session import read_only
from weavegen.store.views import refresh
from weavegen.trace.blocks import BlockType
from weavegen.viewer.app import TOO_SLOW, make_app


def ticks(conn: Connection, trace: int, firsts: list[int], rewards: list[float]) -> None:
    """Give a trace ticks that begin at these blocks."""
    for number, (first, reward) in enumerate(zip(firsts, rewards, strict=True)):
        add = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward) "
        add += "values (:id, :n, 'main', 0, :first, 0, :reward)"
        conn.execute(Statement(add), {"id": trace, "n": number, "first": first, "reward": reward})
        conn.execute(
            Statement("update blocks set tick = :n where trace_id = :id and index >= :first"),
            {"id": trace, "n": number, "first": first},
        )


@pytest.fixture
def both(corpus: Database) -> tuple[int, int]:
    """Two traces that diverge at block 5, in tick 1; the second has one more debug block in that tick."""
    bodies = [action(number, 3) for number in range(9)]
    with corpus.begin() as conn:
        a, b = (new_trace(conn, status="ended") for _ in range(2))
        add_blocks(conn, a, bodies)
        add_blocks(conn, b, [*bodies[:5], bodies[5].replace("total_1", "sum_1")])
        add_blocks(conn, b, ['"""Why?"""'], BlockType.DEBUG)
        add_blocks(conn, b, [*bodies[6:8], f"'{HOSTILE}'".replace("\x1b", "")])
        ticks(conn, a, [0, 3, 8], [0.0, 0.2, 0.3])
        ticks(conn, b, [0, 3, 9], [0.0, 0.4, 0.5])
    return a, b


def test_two_traces_side_by_side(page: Page, both: tuple[int, int]) -> None:
    a, b = both
    page.goto(f"/compare/traces?a={a}&b={b}")
    expect(page.get_by_text("Blocks 0 to 4 are the same. They part at block 5")).to_be_visible()
    headings = page.locator(".compared h2")
    expect(headings).to_have_text(["Tick 1 reward 0.200 and 0.400", "Tick 2 reward 0.300 and 0.500"])
    first = page.locator(".compared").first
    same = ["the same action: blocks 3 and 3", "the same action: blocks 4 and 4"]
    same += [f"the same action: blocks {n} and {n + 1}" for n in (6, 7)]
    expect(first.locator("> p")).to_have_text(same)
    rows = first.locator(".two")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator("article")).to_have_count(2)
    expect(rows.nth(1)).to_contain_text(f"no such block in trace {a}")
    boxes = [one.bounding_box() for one in rows.nth(0).locator("article").all()]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    expect(page.locator(".compared").last).to_contain_text("<script>alert(1)</script>")
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Differences", pressed=True)).to_be_visible()
    expect(rows.nth(0).locator("del").first).to_have_text("total_1")
    expect(rows.nth(0).locator("ins").first).to_have_text("sum_1")
    page.goto(f"/compare/traces?a={a}&b={b}&tick=0")
    expect(page.locator(".compared")).to_have_count(3)


def test_the_results_are_those_of_the_jobs_pages(page: Page, corpus: Database, both: tuple[int, int]) -> None:
    a, b = both
    with corpus.begin() as conn:
        for trace, returned in ((a, {"success": True}), (b, {"result": "", "success": False})):
            change = Statement("update traces set returned = cast(:returned as jsonb) where id = :id")
            conn.execute(change, {"returned": returned, "id": trace})
    page.goto(f"/compare/traces?a={a}&b={b}")
    results = page.get_by_role("region", name="Both traces").locator("tbody td:nth-child(6)")
    expect(results).to_have_text(["success", "no success"])


def test_a_fork_is_compared_from_its_common_block_on(page: Page, corpus: Database, both: tuple[int, int]) -> None:
    a, b = both
    with corpus.begin() as conn:
        conn.execute(Statement("update traces set fork_of = :a, fork_at = 5 where id = :b"), {"a": a, "b": b})
    page.goto(f"/traces/{b}/blocks/1")
    page.get_by_role("link", name="compare").click()
    expect(page.get_by_text(f"Trace {b} is a fork of trace {a} at block 5.")).to_be_visible()
    expect(page.locator(".compared h2").first).to_contain_text("Tick 1")
    page.goto(f"/traces/{a}/about")
    page.get_by_label("Compare with trace").fill(str(b))
    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile(rf"/compare/traces\?a={a}&b={b}$"))


def test_equal_traces_and_one_that_is_longer(page: Page, corpus: Database, both: tuple[int, int]) -> None:
    a, _ = both
    page.goto(f"/compare/traces?a={a}&b={a}")
    expect(page.get_by_text("All blocks are the same.")).to_be_visible()
    with corpus.begin() as conn:
        shorter = new_trace(conn)
        add_blocks(conn, shorter, [action(number, 3) for number in range(4)])
        ticks(conn, shorter, [0, 3], [0.0, 0.1])
    page.goto(f"/compare/traces?a={a}&b={shorter}")
    expect(page.get_by_text("They part at block 4")).to_be_visible()
    expect(page.get_by_text(f"no such block in trace {shorter}").first).to_be_visible()


def test_many_ticks_are_on_pages(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        a, b = (new_trace(conn, status="ended") for _ in range(2))
        for trace in (a, b):
            add_blocks(conn, trace, [action(number + trace, 1) for number in range(11)])
            ticks(conn, trace, list(range(11)), [0.1] * 11)
    page.goto(f"/compare/traces?a={a}&b={b}&diff=1")
    for first in (0, 4, 8):
        expect(page.locator(".compared h2").first).to_contain_text(f"Tick {first} ")
        page.wait_for_load_state()  # Keys are listened to by a deferred script.
        page.keyboard.press("n")
    expect(page.locator(".compared")).to_have_count(3)
    expect(page).to_have_url(re.compile("diff=1$"))


def test_blocks_after_a_subagent_s_ticks_are_shown(page: Page, corpus: Database) -> None:
    """Tick 1 goes on after the subagent's tick 2 with blocks that have its own number, and there the traces diverge."""
    with corpus.begin() as conn:
        a, b = (new_trace(conn, status="ended") for _ in range(2))
        for trace in (a, b):
            bodies = [action(number, 1) for number in range(7)]
            add_blocks(conn, trace, [*bodies[:6], bodies[6].replace("total", f"sum_{trace}")])
            ticks(conn, trace, [0, 2, 4], [0.0, 0.1, 0.1])
            back = "update blocks set tick = 1 where trace_id = :id and index >= 5"
            conn.execute(Statement(back), {"id": trace})
    page.goto(f"/compare/traces?a={a}&b={b}")
    expect(page.locator(".compared .two article")).to_have_count(2)
    expect(page.locator(".compared .two")).to_contain_text(f"sum_{a}")


def new_job(corpus: Database, won: list[bool], rewards: list[float], settings: dict[str, int]) -> int:
    """A job with traces that succeeded or not, and one more that failed."""
    with corpus.begin() as conn:
        first = new_trace(conn, status="failed")
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": first}).scalar_one()
        kept = {"settings": settings, "id": job}
        conn.execute(Statement("update jobs set settings = cast(:settings as jsonb) where id = :id"), kept)
        for number, (success, reward) in enumerate(zip(won, rewards, strict=True), 2):
            add = "insert into traces (job_id, number, bootstrap_id, params, seed, status, ended_because, ticks, "
            add += "returned, started_at) select job_id, :n, bootstrap_id, params, seed, 'ended', 'returned', 1, "
            add += "cast(:returned as jsonb), now() from traces where id = :id returning id"
            returned = {"result": "won" if success else "lost"}
            trace = conn.execute(Statement(add), {"n": number, "returned": returned, "id": first}).scalar_one()
            add_blocks(conn, trace, [action(number, 1)])
            ticks(conn, trace, [0, 1], [0.0, reward])
            step = "insert into steps (trace_id, tick, run, ordinal, kind, label, status, request, queue, claims) "
            step += "values (:id, 1, 0, 0, 'execute', '', 'done', '{}', 'execute', 1) returning id"
            held = conn.execute(Statement(step), {"id": trace}).scalar_one()
            done = "insert into evaluations (trace_id, step_id, tick, position, scope, title, value) "
            done += "values (:id, :step, 1, 0, 'task', 'Is it won?', :value)"
            values = {"id": trace, "step": held, "value": "true" if success else "false"}
            conn.execute(Statement(done), values)
    return int(job)


def test_two_jobs_by_measures_with_intervals(page: Page, corpus: Database) -> None:
    a = new_job(corpus, [True] * 9 + [False], [0.1, 0.2, 0.3, 0.4, 0.5] * 2, {"ticks": 3})
    b = new_job(corpus, [False] * 9 + [True], [0.2] * 10, {"ticks": 4})
    with corpus.connect() as conn:
        list(refresh(conn, ["tick_stats"]))
    page.goto(f"/jobs/{a}")
    page.get_by_label("Compare with job").fill(str(b))
    page.get_by_role("button", name="Compare").click()
    row = page.locator("tr", has=page.get_by_role("cell", name="success", exact=True)).first
    # The failed trace does not count as a success.
    for cell, outcomes in ((1, [True] * 9 + [False] * 2), (2, [True] + [False] * 10)):
        wanted = share(outcomes)
        text = f"{wanted.value:.1%} {wanted.low:.1%} to {wanted.high:.1%}, 11 traces"
        expect(row.locator("td").nth(cell)).to_have_text(text)
    expect(row.locator("td").nth(3)).to_have_text("apart")
    won = page.locator("tr", has=page.get_by_role("cell", name="won", exact=True)).first
    expect(won.locator("td").nth(1)).to_contain_text("81.8%")
    reward = page.locator("tr", has=page.get_by_role("cell", name=re.compile("^reward of a trace"))).first
    half = 1.96 * math.sqrt(0.02 / 9)  # the variance of the mean of ten
    expect(reward.locator("td").nth(1)).to_have_text(f"0.30 {0.3 - half:.2f} to {0.3 + half:.2f}, 10 traces")
    expect(reward.locator("td").nth(2)).to_have_text("0.20 0.20 to 0.20, 10 traces")
    settings = page.get_by_role("region", name="Settings")
    expect(settings.locator("tbody tr")).to_have_text(["ticks34"])


def test_a_task_without_evaluations_has_no_success(page: Page, corpus: Database) -> None:
    job = "select job_id from traces where id = :id"
    with corpus.begin() as conn:
        new = [new_trace(conn, status="ended") for _ in range(2)]
        a, b = (conn.execute(Statement(job), {"id": trace}).scalar_one() for trace in new)
    page.goto(f"/compare/jobs?a={a}&b={b}")
    measures = page.get_by_role("region", name="Measures", exact=True)
    expect(measures.get_by_role("cell", name="ended", exact=True)).to_have_count(1)
    expect(measures.get_by_role("cell", name="success", exact=True)).to_have_count(0)


def test_a_single_trace_gives_no_interval(corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        add_blocks(conn, trace, [action(0, 1)])
        ticks(conn, trace, [0], [0.1])
        ran = "update blocks set ran = true where trace_id = :id"
        conn.execute(Statement(ran), {"id": trace})
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    with corpus.connect() as conn:
        list(refresh(conn, ["tick_stats"]))
        rows = sql.run(conn, "viewer/compare/measures", a=job, b=job).mappings()
    [acted] = [row for row in rows if row["measure"] == "ticks with an action that ran"]
    assert (acted["kind"], acted["value"], acted["n"]) == ("percent", 1.0, 1)
    assert (acted["low"], acted["high"]) == (None, None)


def test_traces_that_never_started_are_not_compared(corpus: Database) -> None:
    job = new_job(corpus, [True, False], [0.1, 0.3], {})
    with corpus.begin() as conn:
        before = sql.run(conn, "viewer/compare/measures", a=job, b=job).mappings()
        more = "insert into traces (job_id, number, bootstrap_id, params, seed, status, finished_at) "
        more += "select job_id, 100 + n, bootstrap_id, params, seed, 'cancelled', now() "
        more += "from traces, generate_series(1, 50) n where job_id = :job and number = 1"
        conn.execute(Statement(more), {"job": job})
        after = sql.run(conn, "viewer/compare/measures", a=job, b=job).mappings()
    assert "success" in {row["measure"] for row in before}
    assert after == before


def measured(conn: Connection, job: int) -> dict[str, tuple[float, int]]:
    """Value and number of traces of each measure of a job."""
    rows = sql.run(conn, "viewer/compare/measures", a=job, b=job).mappings()
    return {row["measure"]: (row["value"], row["n"]) for row in rows if row["bootstrap"] is None}


def test_success_and_results_are_those_of_the_last_try(corpus: Database) -> None:
    job = new_job(corpus, [True, False], [0.1, 0.3], {})
    with corpus.begin() as conn:
        before = measured(conn, job)
        retry = "update traces set retry_of = (select id from traces where job_id = :job and status = 'failed') "
        conn.execute(Statement(f"{retry} where job_id = :job and number = 2"), {"job": job})
        after = measured(conn, job)
        conn.rollback()
    for measure in ("success", "won", "lost"):
        assert (before[measure][1], after.pop(measure), before.pop(measure)[1]) == (3, (0.5, 2), 3)
    assert after == before


def test_rare_results_are_compared_together(corpus: Database) -> None:
    job = new_job(corpus, [True, False], [0.1, 0.3], {})
    with corpus.begin() as conn:
        more = "insert into traces (job_id, number, bootstrap_id, params, seed, status, started_at, returned) "
        more += "select job_id, 100 + n, bootstrap_id, params, seed, 'ended', now(), "
        more += "jsonb_build_object('result', case when n <= 20 then 'result ' || n % 10 else 'text ' || n end) "
        more += "from traces, generate_series(1, 50) n where job_id = :job and number = 1"
        conn.execute(Statement(more), {"job": job})
        found = measured(conn, job)
        conn.rollback()
    results = {name: value for name, (value, _) in found.items() if name == "others" or name.startswith("result ")}
    assert results == {"others": 32 / 53} | {f"result {n}": 2 / 53 for n in range(10)}
    assert not any(name.startswith("text") for name in found)


def test_scores_are_those_of_a_limited_number_of_candidates(address: str, corpus: Database) -> None:
    trace, _ = rejected(corpus)
    with corpus.connect() as conn:
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
        first = "select id from traces where job_id = :job and candidates > 0 order by md5(id::text) limit 1"
        first = conn.execute(Statement(first), {"job": job}).scalar_one()
        wanted = "select floor(score * 2) / 2 + 0.25 as score, count(*)::float / sum(count(*)) over () as share "
        wanted += "from candidate_values where trace_id = :id and score is not null group by 1 order by 1"
        shares = conn.execute(Statement(wanted), {"id": first}).all()
        limited, everything = (
            sql.run(conn, "viewer/compare/scores", a=job, b=job, most=most).all() for most in (1, 10**9)
        )
    assert shares
    assert [row.score for row in limited] == [row.score for row in shares]
    assert [row.share for row in limited] == pytest.approx([row.share for row in shares])
    assert everything != limited
    status, _, text = ask(address, "GET", f"/compare/jobs?a={job}&b=1", {})
    assert (status, "Of each job at most about 50,000 candidates" in text) == (200, True)


def test_a_query_that_takes_too_long_is_said(config: Config, db: Database) -> None:
    a = new_job(db, [True], [0.1], {})
    app = make_app(read_only(config, db.url, 0.1, autocommit=True), None)
    with serving(config, db.url, app=app) as address, db.begin() as conn:
        conn.execute("lock table jobs in access exclusive mode")
        status, _, text = ask(address, "GET", f"/compare/jobs?a={a}&b={a}", {})
    assert (status, TOO_SLOW in text) == (503, True), text


def test_real_jobs_are_compared(page: Page) -> None:
    page.goto("/compare/jobs?a=1&b=2")
    expect(page.locator(".plot svg")).to_have_count(1)
    measures = page.get_by_role("region", name="Measures", exact=True)
    expect(measures.locator("tbody tr").first).to_be_visible()
    expect(page.get_by_role("heading", name="By bootstrap")).to_be_visible()
    expect(page.get_by_role("region", name="Errors").locator("tbody tr").first).to_be_visible()


def test_what_can_not_be_compared_is_said(address: str, both: tuple[int, int]) -> None:
    for path, says in (
        ("/compare/traces", "give the numbers of both"),
        (f"/compare/traces?a={both[0]}", "give the numbers of both"),
        (f"/compare/traces?a={both[0]}&b=987654321", "there is no trace 987654321"),
        ("/compare/jobs?a=1&b=987654321", "there is no job 987654321"),
    ):
        status, _, text = ask(address, "GET", path, {})
        assert (status, says in text) == (404, True), text
