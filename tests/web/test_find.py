"""The table of a job's traces, the summary of its outcomes, and ways to what matters in a trace."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.serving import ask
from tests.web.traces import action, add_blocks, new_trace
from weavegen import sql
from weavegen.database import Database, Statement
from weavegen.evaluator.evaluation import share
from weavegen.store import reports
from weavegen.store.views import refresh
from weavegen.trace.blocks import BlockType
from weavegen.viewer import listing
from weavegen.viewer.rendering import UNKNOWN, percent

RESULTS = ("won", "lost", "won", None)


def change(corpus: Database, query: str, **values: Any) -> None:
    with corpus.begin() as conn:
        conn.execute(Statement(query), values)


@pytest.fixture
def job(corpus: Database) -> tuple[int, list[int]]:
    """A job and its four traces: 3, 6, 9 and 12 blocks; 0, 1, 2, 3 errors; mean rewards 0.4, 0.3, 0.2, 0.1."""
    with corpus.begin() as conn:
        first = new_trace(conn, status="ended")
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": first}).scalar_one()
        more = "insert into traces (job_id, number, bootstrap_id, params, seed, status, started_at) "
        more += "select job_id, number + :n, bootstrap_id, params, seed, 'ended', now() from traces where id = :id "
        others = [
            conn.execute(Statement(f"{more} returning id"), {"n": n, "id": first}).scalar_one() for n in (1, 2, 3)
        ]
        traces = [first, *map(int, others)]
        for n, trace in enumerate(traces):
            add_blocks(conn, trace, [action(number, 2) for number in range(3 * n + 3 - n)])
            add_blocks(conn, trace, ["Traceback"] * n, BlockType.ERROR)
            conn.execute(Statement("update blocks set tick = 1 where trace_id = :id"), {"id": trace})
            tick = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward) "
            tick += "values (:id, 1, 'main', 0, 0, 0, :reward), (:id, 2, 'main', 0, 99, 0, :reward)"
            conn.execute(Statement(tick), {"id": trace, "reward": 0.4 - 0.1 * n})
            if RESULTS[n]:
                returned = {"returned": {"result": RESULTS[n]}, "id": trace}
                conn.execute(
                    Statement("update traces set returned = cast(:returned as jsonb) where id = :id"), returned
                )
        conn.execute(
            Statement("update blocks set tags = '{odd}' where trace_id = :id and index = 0"), {"id": traces[1]}
        )
        labelled = (
            "insert into annotations (trace_id, author, verdict, labels, note) values (:id, 'a', 'bad', '{odd}', '')"
        )
        conn.execute(Statement(labelled), {"id": traces[3]})
    with corpus.connect() as conn:
        list(refresh(conn, ["tick_stats", "tick_sums"]))
    return int(job), traces


def listed(page: Page) -> list[int]:
    """The traces in the table, in order."""
    return [int(one) for one in page.locator("tbody .row td:first-child").all_inner_texts()]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("sort=-number", [3, 2, 1, 0]),
        ("sort=reward", [3, 2, 1, 0]),
        ("sort=-errors", [3, 2, 1, 0]),
        ("sort=-blocks&blocks_max=9", [2, 1, 0]),
        ("sort=result", [1, 0, 2, 3]),
        ("result=won", [0, 2]),
        ("result=none", [3]),
        ("reward_min=0.15&reward_max=0.35", [1, 2]),
        ("errors_min=1&result=won", [2]),
        ("tag=odd", [1, 3]),
        ("tag=bad", [3]),
        ("bootstrap=made.py&status=ended&errors_max=0", [0]),
        ("bootstrap=other.py", []),
        ("status=failed", []),
    ],
)
def test_an_address_filters_and_sorts(page: Page, job: tuple[int, list[int]], query: str, found: list[int]) -> None:
    number, traces = job
    page.goto(f"/jobs/{number}?{query}")
    assert listed(page) == [traces[n] for n in found]


def test_what_an_address_can_not_ask_for_is_said(address: str, job: tuple[int, list[int]]) -> None:
    for query, says in (
        ("sort=id;drop", "there is no column &#39;id;drop&#39;: sort by one of number, bootstrap"),
        ("reward_min=much", "reward_min &#39;much&#39; is not a number"),
        ("reward_max=nan", "reward_max &#39;nan&#39; is not a number"),
    ):
        status, _, text = ask(address, "GET", f"/jobs/{job[0]}?{query}", {})
        assert (status, says in text) == (404, True), text


def test_filters_and_headings_make_an_address_that_can_be_sent(page: Page, job: tuple[int, list[int]]) -> None:
    number, traces = job
    page.goto(f"/jobs/{number}")
    page.get_by_role("columnheader", name="Errors").get_by_role("link").click()
    assert listed(page) == traces[::-1]
    expect(page.get_by_role("columnheader", name="Errors")).to_have_attribute("aria-sort", "descending")
    page.get_by_label("Blocks from").fill("6")
    page.get_by_role("button", name="Filter").click()
    assert listed(page) == [traces[3], traces[2], traces[1]]
    page.get_by_role("columnheader", name="Errors").get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"blocks_min=6&sort=errors$"))
    assert listed(page) == traces[1:]
    page.get_by_role("link", name="won 2").click()  # which are not the two with six blocks or more
    assert listed(page) == [traces[0], traces[2]]
    page.get_by_role("link", name="all traces").click()
    assert listed(page) == traces


def test_pages_keep_the_filters(page: Page, corpus: Database, job: tuple[int, list[int]]) -> None:
    number, traces = job
    more = "insert into traces (job_id, number, bootstrap_id, params, seed, status) "
    more += "select job_id, 100 + n, bootstrap_id, params, seed, 'queued' from traces, generate_series(1, 150) n"
    change(corpus, f"{more} where id = :id", id=traces[0])
    page.goto(f"/jobs/{number}?status=queued&sort=-number")
    first = listed(page)
    page.get_by_role("link", name="Later").click()
    assert (len(first), len(listed(page))) == (100, 50)
    assert first + listed(page) == sorted(first + listed(page), reverse=True)


def test_a_trace_that_is_not_over_is_not_without_a_result(corpus: Database, job: tuple[int, list[int]]) -> None:
    number, traces = job
    more = "insert into traces (job_id, number, bootstrap_id, params, seed, status) "
    more += "select job_id, 9 + n, bootstrap_id, params, seed, (array['queued', 'running'])[n] "
    change(corpus, f"{more} from traces, generate_series(1, 2) n where id = :id", id=traces[0])
    with corpus.connect() as conn:
        found, _ = listing.rows(conn, number, {"result": "none"}, 0)
    assert [row["id"] for row in found] == [traces[3]]


def test_a_job_begins_with_its_outcomes(page: Page, corpus: Database, job: tuple[int, list[int]]) -> None:
    page.goto(f"/jobs/{job[0]}")
    outcomes = page.get_by_role("region", name="Outcomes")
    expect(outcomes).to_be_in_viewport(ratio=1)
    for text in ("won 2 · lost 1 · no result 1", "0.250 of 0.5", f"Success{UNKNOWN}"):
        expect(outcomes).to_contain_text(text)
    with corpus.connect() as conn:
        assert {one.success for one in sql.run(conn, "evaluator/traces", job=job[0])} == {None}
        [row] = conn.execute(
            Statement("select job_id from tick_sums where success and kept_tokens > 0 order by job_id limit 1")
        )
        [wanted] = conn.execute(
            Statement("select * from yield_by_job where job_id = :id"), {"id": row.job_id}
        ).mappings()
        assert reports.jobs(conn, row.job_id)
        done = sql.run(conn, "evaluator/traces", job=row.job_id)
        success = share([one.success for one in done if one.success is not None])
    assert success.value > 0
    page.goto(f"/jobs/{row.job_id}")
    shares = map(percent, (success.value, success.low, success.high))
    expect(outcomes).to_contain_text("Success{} {} to {}".format(*shares))
    expect(outcomes).to_contain_text(f"Tokens kept{wanted['kept_tokens'] / wanted['sampled_tokens']:.1%}")
    expect(outcomes).to_contain_text(f"Tokens for a kept MB{wanted['tokens_per_kept_megabyte']:,.0f}")
    expect(outcomes).to_contain_text(f"Mean reward{wanted['reward']:.3f}")


def test_a_result_leads_to_the_traces_that_it_counts(page: Page, corpus: Database, job: tuple[int, list[int]]) -> None:
    """One of the results has a line end, and the trace that lost was tried again."""
    number, traces = job
    returned = "update traces set returned = jsonb_build_object('result', cast(:result as text)) where id = :id"
    change(corpus, returned, result="won\n", id=traces[0])
    change(corpus, returned, result="\n", id=traces[3])
    again = "insert into traces (job_id, number, bootstrap_id, params, seed, status, retry_of, returned) "
    again += "select job_id, 9, bootstrap_id, params, seed, 'ended', id, cast(:returned as jsonb) from traces "
    change(corpus, f"{again} where id = :id", returned={"result": "won"}, id=traces[1])
    page.goto(f"/jobs/{number}?blocks_min=9&sort=-blocks")
    expect(page.get_by_role("region", name="Outcomes")).to_contain_text("won 3 · no result 1")
    page.get_by_role("link", name="won 3").click()
    assert listed(page)[:2] == [traces[2], traces[0]]
    assert len(listed(page)) == 3
    page.get_by_role("button", name="Filter").click()
    assert len(listed(page)) == 3
    page.get_by_role("link", name="no result 1").click()
    assert listed(page) == [traces[3]]
    page.goto(f"/jobs/{number}?result=lost")
    assert listed(page) == []


def test_a_share_is_rounded_neither_to_none_nor_to_all() -> None:
    shares = (0.0, 1e-18, 1e-9, 0.005, 0.015, 0.985, 0.995, 0.9999, 1 - 2**-52, 1.0)
    shown = ["0%", "0%", "under 1%", "under 1%", "2%", "98%", "over 99%", "over 99%", "100%", "100%"]
    assert list(map(percent, shares)) == shown
    assert [percent(share, 1) for share in (0.0004, 0.9994, 0.9996)] == ["under 0.1%", "99.9%", "over 99.9%"]


def test_rewards_of_a_harbor_task_are_no_shares_of_a_half(
    address: str, corpus: Database, job: tuple[int, list[int]]
) -> None:
    number, (trace, *_) = job
    places = (f"/jobs/{number}", f"/traces/{trace}", f"/traces/{trace}/ticks")
    for shares in (True, False):
        for place in places:
            shown = re.search(r"(of|to) 0\.5", ask(address, "GET", place, {})[2])
            assert (shown is not None) is shares, place
        task = (
            "with task as (insert into harbor_tasks (sha256, name, task, metadata, files) values "
            "('no shares', '', '{}', '{}', '') returning id) update traces set harbor_task_id = task.id from task"
        )
        if shares:
            change(corpus, f"{task} where job_id = :job", job=number)
            change(corpus, "update ticks set reward = -1 where trace_id = :trace", trace=trace)
    assert 'width="-' not in ask(address, "GET", places[2], {})[2]


# ------------------------------------------------------------------------------------------------ within a trace


@pytest.fixture
def trace(corpus: Database) -> int:
    """A trace of 60 blocks, whose first tick after the bootstrap begins at block 30."""
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        add_blocks(conn, trace, [action(number, 30 if number == 0 else 4) for number in range(60)])
        ticks = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock) "
        ticks += "values (:id, 0, 'main', 0, 0, 0), (:id, 1, 'main', 0, 30, 0)"
        conn.execute(Statement(ticks), {"id": trace})
        for index, what in (
            (10, "ran = false"), (35, "ran = false, score = -1"), (36, "type = 'error'"), (50, "type = 'error'"),
            (40, "type = 'backtrack'"), (44, "score = -0.5"), (47, "ran = true, score = -3"),
        ):  # fmt: skip
            query = f"update blocks set {what} where trace_id = :id and index = :index"
            conn.execute(Statement(query), {"id": trace, "index": index})
    return trace


def test_a_trace_opens_at_its_first_written_tick(page: Page, corpus: Database, trace: int) -> None:
    page.goto(f"/traces/{trace}")
    expect(page.locator("#b30.current")).to_be_in_viewport()
    expect(page.locator("#b0")).not_to_be_in_viewport()
    page.goto(f"/traces/{trace}/blocks/0")
    expect(page.locator("#b0")).to_be_in_viewport()
    with corpus.begin() as conn:
        fork = conn.execute(
            Statement(
                "insert into traces (job_id, number, bootstrap_id, params, seed, status, fork_of, fork_at) "
                "select job_id, 2, bootstrap_id, params, seed, 'ended', id, 42 from traces where id = :id returning id"
            ),
            {"id": trace},
        ).scalar_one()
        add_blocks(conn, fork, [action(number, 4) for number in range(50)])
        conn.execute(
            Statement(
                "insert into ticks (trace_id, number, subagent, deadline, first_block, clock) "
                "select :fork, number, subagent, deadline, first_block, clock from ticks where trace_id = :id"
            ),
            {"fork": fork, "id": trace},
        )
    page.goto(f"/traces/{fork}")
    expect(page.locator("#b42.current")).to_be_in_viewport()


def test_keys_jump_to_the_next_block_of_a_kind(page: Page, trace: int) -> None:
    page.goto(f"/traces/{trace}/blocks/0")
    expect(page.locator("#b0.current")).to_have_count(1)
    for key, index in (
        ("e", 10), ("e", 35), ("e", 50), ("E", 35), ("b", 40), ("l", 44), ("l", 47), ("L", 44), ("v", 47), ("V", 10),
    ):  # fmt: skip
        page.keyboard.press(key)
        expect(page.locator(f"#b{index}.current"), key).to_be_in_viewport()
    page.keyboard.press("B")
    expect(page.get_by_text("No backtrack before block 10.")).to_be_visible()
    page.get_by_role("link", name="low score").click()
    expect(page.locator("#b35.current")).to_be_in_viewport()


def test_a_block_without_a_score_is_no_divergence(address: str, corpus: Database, trace: int) -> None:
    change(corpus, "update blocks set score = null where trace_id = :id", id=trace)
    status, _, text = ask(address, "GET", f"/traces/{trace}/next?kind=divergence", {})
    assert (status, "has no further block of the kind divergence" in text) == (404, True)


def test_jumps_without_a_script(browser: Browser, address: str, trace: int) -> None:
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/traces/{trace}")
    page.get_by_role("link", name="backtrack").click()
    expect(page).to_have_url(re.compile(f"/traces/{trace}/blocks/40$"))
    context.close()


def test_wrong_jumps_are_refused(address: str, trace: int) -> None:
    for query, says in (
        ("kind=joy", "there is no kind &#39;joy&#39;: choose one of error, backtrack, low, divergence"),
        ("kind=error&after=50", f"trace {trace} has no further block of the kind error"),
    ):
        status, _, text = ask(address, "GET", f"/traces/{trace}/next?{query}", {})
        assert (status, says in text) == (404, True), text
