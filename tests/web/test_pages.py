"""Every page and its functions."""

import json
import re
import time
from collections import Counter
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.places import PLACES, rejected
from tests.web.serving import ask, serving, tell
from tests.web.traces import HOSTILE, action, add_blocks, add_candidates, new_trace
from weavegen.config import SIMULATED_MODEL, Config
from weavegen.database import Database, Statement
from weavegen.store import messages, reports
from weavegen.store.views import refresh
from weavegen.trace.blocks import BlockType
from weavegen.trace.render import parse_trace
from weavegen.viewer import figures
from weavegen.viewer.chat import MAX_MESSAGE_CHARS
from weavegen.viewer.rendering import UNKNOWN


def test_jobs_and_a_jobs_traces(page: Page) -> None:
    page.goto("/?before=5")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("^Job "))).to_be_visible()
    page.locator("tbody .row a").first.click()
    expect(page.locator("#b0")).to_be_visible()


def test_older_jobs_follow(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        for number in range(reports.JOBS):
            new_trace(conn, name=f"older {number}")
    page.goto("/")
    with corpus.begin() as conn:
        new_trace(conn, name="a job that is enqueued meanwhile")
        jobs = conn.execute("select distinct job_id from traces order by 1 desc").scalars()
    for first in range(0, len(jobs), reports.JOBS):
        expect(page.locator("tr.row td.num:first-child")).to_have_text(
            list(map(str, jobs[first : first + reports.JOBS]))
        )
        if first + reports.JOBS < len(jobs):
            page.get_by_role("link", name="older jobs").click()
    page.get_by_role("link", name="newest jobs").click()
    expect(page.locator("tr.row").first).to_contain_text(str(jobs[0]))
    page.goto("/?before=1")
    expect(page.get_by_text("There is no older job")).to_be_visible()


def test_the_traces_of_one_status(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="failed")
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    page.goto(f"/jobs/{job}?status=failed")
    expect(page.locator("tbody .row")).to_have_count(1)
    page.get_by_role("link", name="ended").click()
    expect(page.get_by_text("None.")).to_be_visible()


def test_a_job_s_progress_is_live(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, name="live.py")
        job = conn.execute(
            Statement("update jobs set settings = '{\"ticks\": 4}' where id = "
                    "(select job_id from traces where id = :id) returning id"), {"id": trace},
        ).scalar_one()  # fmt: skip
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("img", name="Progress: 0%")).to_be_visible()
    with corpus.begin() as conn:
        conn.execute(Statement("update traces set ticks = 3 where id = :id"), {"id": trace})
    expect(page.get_by_role("img", name="Progress: 75%")).to_be_visible()
    with corpus.begin() as conn:
        over = "update traces set status = 'ended', finished_at = now() where id = :id"
        conn.execute(Statement(over), {"id": trace})
    expect(page.get_by_role("img", name="Progress: 100%")).to_be_visible()


def test_progress_by_size_and_by_the_agent_s_own_end(page: Page, corpus: Database) -> None:
    budget = "update jobs set settings = cast(:settings as jsonb) where id = "
    budget += "(select job_id from traces where id = :id) returning id"
    with corpus.begin() as conn:
        sized, free = new_trace(conn, name="sized.py"), new_trace(conn, name="free.py")
        job = conn.execute(Statement(budget), {"settings": {"until_bytes": 1000}, "id": sized}).scalar_one()
        conn.execute(Statement("update traces set bytes = 400 where id = :id"), {"id": sized})
        # The first trace ended with 20 blocks, and the second has 5.
        other = "insert into traces (job_id, number, bootstrap_id, params, seed, status, started_at, blocks) "
        other += "select job_id, 2, bootstrap_id, params, seed, 'running', now(), 5 from traces where id = :id"
        conn.execute(Statement(other), {"id": free})
        ended = "update traces set status = 'ended', blocks = 20 where id = :id returning job_id"
        unlimited = conn.execute(Statement(ended), {"id": free}).scalar_one()
    page.goto("/")
    expect(page.get_by_role("img", name=f"Progress of job {job}: 40%")).to_be_visible()
    expect(page.get_by_role("img", name=f"Progress of job {unlimited}: 62%")).to_be_visible()


def test_a_blocks_candidates_show_why_they_lost(page: Page, corpus: Database) -> None:
    trace, index = rejected(corpus)
    page.goto(f"/traces/{trace}/blocks/{index}")
    page.locator(f"#b{index} a.candidates").click()
    expect(page.locator(".candidate.chosen")).to_have_count(1)
    reasons = page.locator(".candidate .reason").all_inner_texts()
    assert len(reasons) == page.locator(".candidate").count() > 2
    assert all(reasons)
    page.keyboard.press("u")
    expect(page.locator(f"#b{index}")).to_be_in_viewport()


def test_from_the_front_page_to_a_candidates_differences(page: Page, corpus: Database) -> None:
    trace, _ = rejected(corpus)
    with corpus.connect() as conn:
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    page.goto(f"/?before={job + 1}")
    row = page.locator("tr.row", has=page.get_by_role("link", name=str(job), exact=True))
    while "current" not in (row.get_attribute("class") or ""):
        page.keyboard.press("j")
    for key, seen in (("Enter", "Traces"), ("Enter", "Trace "), ("c", "Block "), ("d", "Block ")):
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=re.compile(f"^{seen}")).first).to_be_visible()
        page.wait_for_load_state()  # Keys are listened to by a deferred script.
    expect(page.get_by_role("button", name="Differences", pressed=True)).to_be_visible()


def test_differences_from_the_block(page: Page, corpus: Database) -> None:
    trace, index = rejected(corpus)
    page.goto(f"/traces/{trace}/blocks/{index}/candidates")
    expect(page.locator("main del, main ins")).to_have_count(0)
    kept = page.locator(".candidate.chosen > pre").inner_text()
    lost = page.locator(".candidate:not(.chosen)").nth(1)
    text, name = lost.locator("> pre").inner_text(), lost.get_attribute("id")
    for _ in range(3):
        page.keyboard.press("j")
    expect(lost).to_have_class(re.compile("current"))
    page.keyboard.press("d")
    expect(page.get_by_role("button", name="Differences", pressed=True)).to_be_visible()
    expect(page).to_have_url(re.compile(rf"\?diff=1#{name}$"))
    expect(lost).to_have_class(re.compile("current"))
    expect(lost).to_be_in_viewport()
    expect(lost.locator(".shared")).to_contain_text("shared")
    # Each side is complete, and marked by more than its colour.
    for side, whole in (("ins", kept), ("del", text)):
        body = lost.locator("> pre")
        left = body.evaluate(f"""pre => {{
            const copy = pre.cloneNode(true);
            copy.querySelectorAll("{side}").forEach(one => one.remove());
            return copy.textContent.replaceAll("\u21b5", "");
        }}""")
        assert left.strip() == whole.strip()
    style = "(one, of) => getComputedStyle(one).textDecorationLine"
    assert page.locator(".candidate del").first.evaluate(style) == "line-through"
    assert page.locator(".candidate ins").first.evaluate(style) == "underline"
    page.get_by_role("button", name="Differences").click()
    expect(page.get_by_role("button", name="Differences", pressed=False)).to_be_visible()
    expect(page.locator("main del, main ins")).to_have_count(0)


def test_differences_of_many_long_candidates(page: Page, corpus: Database) -> None:
    texts = [action(number % 7, lines) for number, lines in enumerate([900, *[80] * 62, 2_000])]
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, texts[:1])
        add_candidates(conn, trace, 0, texts)
    for place in ("", "?diff=1"):
        began = time.perf_counter()
        page.goto(f"/traces/{trace}/blocks/0/candidates{place}")
        seconds = time.perf_counter() - began
        tell(f"{len(texts)} candidates, {sum(map(len, texts)) / 1e3:.0f} kB{place}: shown after {seconds:.2f} s")
    expect(page.locator(".shared")).to_have_count(63)
    expect(page.locator(".shared").last).to_contain_text("more characters were not compared")


def test_differences_are_escaped(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, ["said"])
        hostile = HOSTILE.replace("\x1b", "")
        ids = add_candidates(conn, trace, 0, [f"{hostile} one", f"{hostile} <img src=x onerror=alert(9)>", "said\n"])
    page.goto(f"/traces/{trace}/blocks/0/candidates?diff=1")
    expect(page.locator(f"#c{ids[1]} > pre")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator(f"#c{ids[1]} ins")).to_contain_text("<img src=x onerror=alert(9)>")
    assert page.locator("main img, main script, main style, main textarea").count() == 0
    assert "\u202e" not in page.content()


def test_differences_without_a_script(browser: Browser, address: str, corpus: Database) -> None:
    trace, index = rejected(corpus)
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/traces/{trace}/blocks/{index}/candidates")
    page.get_by_role("button", name="Differences").click()
    expect(page.locator(".candidate del").first).to_be_visible()
    page.get_by_role("link", name=re.compile("^Block ")).last.click()
    expect(page).to_have_url(re.compile(r"/candidates\?diff=1$"))
    expect(page.locator(".candidate.chosen")).to_have_count(1)
    page.get_by_role("button", name="Differences").click()
    expect(page.locator("main del, main ins")).to_have_count(0)
    context.close()


def test_a_candidate_is_found_by_its_number(page: Page, corpus: Database) -> None:
    trace, index = rejected(corpus)
    with corpus.connect() as conn:
        query = "select max(id) from candidates where trace_id = :trace and block_index = :index and type = "
        query += "(select type from blocks where trace_id = :trace and index = :index)"
        number = conn.execute(Statement(query), {"trace": trace, "index": index}).scalar_one()
    page.goto(f"/candidates/{number}")
    expect(page).to_have_url(re.compile(f"/traces/{trace}/blocks/{index}/candidates#c{number}$"))
    expect(page.locator(f"#c{number}.current")).to_be_in_viewport()
    assert page.request.get("/candidates/987654321").status == 404


def test_the_candidates_of_a_copied_block_are_those_of_the_other_trace(address: str, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace, fork = new_trace(conn, status="ended"), new_trace(conn, status="ended")
        for one in (trace, fork):
            add_blocks(conn, one, [action(number, 1) for number in range(3)])
        forked = "update traces set fork_of = :trace, fork_at = 2 where id = :fork"
        conn.execute(Statement(forked), {"trace": trace, "fork": fork})
    for index, copied in ((1, True), (2, False)):
        status, _, text = ask(address, "GET", f"/traces/{fork}/blocks/{index}/candidates", {})
        there = f'href="/traces/{trace}/blocks/{index}/candidates"' in text
        assert (status, there, "The model did not write this block" in text) == (200, copied, not copied)


def test_deep_link_and_keys(page: Page, corpus: Database) -> None:
    trace, index = rejected(corpus)
    page.goto(f"/traces/{trace}/blocks/{index}")
    expect(page.locator(f"#b{index}")).to_be_in_viewport()
    expect(page.locator(f"#b{index}.current")).to_have_count(1)
    page.wait_for_load_state("networkidle")
    page.keyboard.press("j")
    expect(page.locator(f"#b{index + 1}.current")).to_have_count(1)
    expect(page).to_have_url(re.compile(f"/blocks/{index + 1}$"))
    page.keyboard.press("k")
    page.keyboard.press("k")
    expect(page.locator(f"#b{index - 1}.current")).to_have_count(1)
    page.keyboard.press("g")
    expect(page.locator("#b0.current")).to_be_in_viewport()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(page.locator("#find")).to_be_focused()
    page.keyboard.type("jjj")
    expect(page.locator("#find")).to_have_value("jjj")


def test_going_to_a_block_by_its_number(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 6) for number in range(300)])
    page.goto(f"/traces/{trace}")
    page.get_by_label("Block", exact=True).fill("222")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.locator("#b222.current")).to_be_in_viewport()
    page.locator("main").press("G")
    expect(page.locator("#b299")).to_be_in_viewport()


def test_light_and_dark(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_wider_than_a_phone(page: Page, corpus: Database, place: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(place.format(*rejected(corpus)))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_long_name_is_no_wider_than_a_phone(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, name="a_very_long_name" * 20)
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    page.set_viewport_size({"width": 360, "height": 740})
    for place in ("/", f"/jobs/{job}", f"/figures?job={job}", f"/traces/{trace}", f"/jobs/{job}/report"):
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place


def test_ticks_and_timeline(page: Page, corpus: Database) -> None:
    trace, _ = rejected(corpus)
    page.goto(f"/traces/{trace}/ticks")
    page.locator("tbody .row a").nth(2).click()
    expect(page.get_by_role("img", name=re.compile("steps in"))).to_be_visible()
    page.get_by_text("As a table").click()
    expect(page.get_by_role("columnheader", name="Environment")).to_be_visible()


def test_ticks_name_their_own_blocks(page: Page, corpus: Database) -> None:
    """Tick 1 goes on after the tick of a subagent, and tick 3 has no blocks."""
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 1) for number in range(7)])
        conn.execute(
            Statement("update blocks set tick = (array[0,1,1,2,2,1,1])[index + 1] where trace_id = :id"), {"id": trace}
        )
        add = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock) "
        add += "select :id, n, 'main', 0, (array[0,1,3,7])[n + 1], 0 from generate_series(0, 3) n"
        conn.execute(Statement(add), {"id": trace})
    page.goto(f"/traces/{trace}/ticks")
    expect(page.locator("tbody .row td:nth-child(3)")).to_have_text(
        ["0", f"1{UNKNOWN}64 of them", f"3{UNKNOWN}4", UNKNOWN]
    )
    for number, links in enumerate((["block 0"], ["block 1"], ["block 3"], [])):
        page.goto(f"/traces/{trace}/ticks/{number}")
        expect(page.locator("h2 a")).to_have_text(links)


def test_problem_map(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        for name, parent in (("main", None), ("scout", "main"), ("mapper", "scout")):
            add = (
                "insert into subagents (trace_id, name, parent, description, schema, time_budget, completed) "
                "values (:trace, :name, :parent, :text, '{}', 9, false)"
            )
            conn.execute(
                Statement(add), {"trace": trace, "name": name, "parent": parent, "text": f"{name} {HOSTILE[:-5]}"}
            )
    page.goto(f"/traces/{trace}/problems")
    expect(page.locator(".problems .problems .problems .problem h2")).to_contain_text("mapper")


def test_new_blocks_appear_as_they_are_committed(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in range(24)])
    page.goto(f"/traces/{trace}")
    expect(page.locator("#b23")).to_be_attached()
    page.get_by_role("button", name="Follow").click()
    page.evaluate(
        """() => { window.seen = {}; new MutationObserver(() => {
            for (const one of document.querySelectorAll('.block')) window.seen[one.id] ??= Date.now();
        }).observe(document.querySelector('#blocks'), {childList: true, subtree: true}); }"""
    )
    delays = []
    for number in range(24, 32):  # also across the end of a piece
        with corpus.begin() as conn:
            add_blocks(conn, trace, [action(number, 3)])
        committed = page.evaluate("Date.now()")
        expect(page.locator(f"#b{number}")).to_be_attached()
        delays.append(page.evaluate(f"window.seen['b{number}']") - committed)
    tell(f"a block is seen after its commit: {max(delays)} ms at most, of {len(delays)}")
    expect(page.locator("#b31")).to_be_in_viewport()
    assert page.locator(".block").count() == 32
    with corpus.begin() as conn:
        over = "update traces set status = 'ended', finished_at = now() where id = :id"
        conn.execute(Statement(over), {"id": trace})
    expect(page.locator("#status .status")).to_have_text("ended")
    expect(page.get_by_text("End of the trace.")).to_be_visible()


def test_rewards_appear_when_their_tick_ends(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in range(12)])
    page.goto(f"/traces/{trace}/blocks/11")
    expect(page.locator("#b11.current")).to_be_in_viewport()
    page.locator("#b11 summary").click()
    page.locator("#b11").get_by_label("Note").fill("It is not lost")
    with corpus.begin() as conn:
        conn.execute(Statement("update blocks set reward = 0.125 where trace_id = :id and index = 11"), {"id": trace})
        tick = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward, finished_at) "
        conn.execute(Statement(f"{tick} values (:id, 1, 'main', 0, 0, 0, 0.25, now())"), {"id": trace})
        conn.execute(Statement("update traces set ticks = 1, bytes = 4200 where id = :id"), {"id": trace})
    expect(page.locator("#b11 header")).to_contain_text("reward 0.125")
    expect(page.locator("#reward")).to_have_text("0.25")
    expect(page.locator("#bytes")).to_have_text("4.2 kB")
    expect(page.locator("#b11").get_by_label("Note")).to_have_value("It is not lost")


def test_following_ends_where_a_person_goes_back(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in range(24)])
    page.goto(f"/traces/{trace}")
    follow = page.get_by_role("button", name="Follow")
    for key in ("k", "g", "PageUp"):
        page.keyboard.press("G")
        expect(page.locator("#b23.current")).to_be_in_viewport()
        follow.click()
        expect(follow).to_have_attribute("aria-pressed", "true")
        page.keyboard.press(key)
        expect(follow).to_have_attribute("aria-pressed", "false")


def test_a_restarted_tick_changes_the_page(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in range(30)])
    page.goto(f"/traces/{trace}")
    page.keyboard.press("G")
    expect(page.locator("#b29")).to_be_attached()
    with corpus.begin() as conn:
        conn.execute(Statement("delete from blocks where trace_id = :id and index >= 20"), {"id": trace})
        conn.execute(Statement("update traces set blocks = 20, restarts = 1 where id = :id"), {"id": trace})
        add_blocks(conn, trace, ['"""Started over."""'], BlockType.ORIENTATION)
    expect(page.locator("#b20")).to_contain_text("Started over.")
    expect(page.locator("#b21")).to_have_count(0)


def test_a_restarted_tick_of_a_trace_that_has_grown_meanwhile(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in range(24)])
    page.goto(f"/traces/{trace}")
    expect(page.locator("#b23")).to_be_attached()
    with corpus.begin() as conn:  # in one commit, as a page sees it that was hidden for a while
        conn.execute(Statement("delete from blocks where trace_id = :id and index >= 20"), {"id": trace})
        conn.execute(Statement("update traces set blocks = 20, restarts = 1 where id = :id"), {"id": trace})
        add_blocks(conn, trace, [action(number, 3) for number in range(20, 60)])
    expect(page.locator("#count")).to_have_text("60")
    with corpus.begin() as conn:
        add_blocks(conn, trace, [action(60, 3)])
    expect(page.locator("#count")).to_have_text("61")
    expect(page.locator("#blocks .piece")).to_have_count(3)
    for index in (30, 60):
        page.locator("#goto-index").fill(str(index))
        page.keyboard.press("Enter")
        expect(page.locator(f"#b{index}.current")).to_be_in_viewport()
    expect(page.locator("#b60")).to_have_count(1)


def test_a_link_of_a_live_list_keeps_its_click_and_its_focus(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, name="pressed.py")
    page.goto("/")
    links = page.get_by_role("link", name="pressed.py")
    links.focus()
    box = page.locator("#jobs")
    before = box.inner_html()
    with corpus.begin() as conn:
        add_blocks(conn, trace, [action(0, 1)])
    expect(box).not_to_have_js_property("innerHTML", before)
    expect(links).to_be_focused()
    links.hover()
    page.mouse.down()
    pressed = box.inner_html()
    with corpus.begin() as conn:
        add_blocks(conn, trace, [action(1, 1)])
    page.wait_for_timeout(3000)  # in which the list would have been replaced
    assert box.inner_html() == pressed
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/jobs/\d+$"))


def test_search(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(7, 2), 'def action_x(self):\n    return "zyzzyva quagga"\n'])
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("zyzzyva quagga")
    page.keyboard.press("Enter")
    page.get_by_role("link", name=f"trace {trace}, block 1").click()
    expect(page.locator("#b1.current")).to_be_in_viewport()
    page.goto("/search?q=type:nothing")
    expect(page.locator("main")).not_to_contain_text("Traceback")


def test_downloads(page: Page, corpus: Database) -> None:
    trace, _ = rejected(corpus)
    page.goto(f"/traces/{trace}")
    texts = []
    for name in (".py", ".json"):
        with page.expect_download() as got:
            page.get_by_role("link", name=name, exact=True).click()
        assert got.value.suggested_filename == f"trace-{trace}{name}"
        texts.append(got.value.path().read_text())
    compile(texts[0], "trace.py", "exec")
    assert len(json.loads(texts[1])) == len(parse_trace(texts[0]))


def test_figures(page: Page) -> None:
    page.goto("/figures")
    expect(page.locator(".plot svg")).to_have_count(2)
    page.get_by_label("Job").select_option(index=1)
    page.get_by_role("button", name="Show").click()
    expect(page.locator("h1")).to_contain_text("of job")


def test_figures_show_whole_curves_and_say_how_many_are_left_out(config: Config, db: Database) -> None:
    """Nine jobs, each with a curve of 300 ticks; then the newest one has 2,100."""
    add = "insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward) "
    add += "select id, n, 'main', 0, 0, 0, 0.5 from traces cross join generate_series(cast(:first as int), :last) n "
    with db.begin() as conn:
        jobs = [new_trace(conn, name=f"curve {number}") for number in range(9)]  # the jobs have the same numbers
        conn.execute(Statement(add), {"first": 1, "last": 300})

    def shown(job: int | None = None) -> tuple[dict[int, int], int]:
        """The ticks in the table by job, and how many curves are left out."""
        with db.connect() as conn:
            list(refresh(conn, ["tick_stats"]))
            found = figures.rewards(conn, job)
        assert found is not None
        return Counter(row["job_id"] for row in found["rows"]), found["left_out"]

    assert shown() == (dict.fromkeys(jobs[3:], 300), 3)
    with serving(config, db.url) as address:
        assert "3 more curves are left out" in ask(address, "GET", "/figures", {})[2]
        assert "left out" not in ask(address, "GET", f"/figures?job={jobs[0]}", {})[2]
    with db.begin() as conn:
        conn.execute(Statement(f"{add} where id = :id"), {"first": 301, "last": 2100, "id": jobs[8]})
    assert shown() == ({jobs[8]: 2100}, 8)
    assert shown(jobs[0]) == ({jobs[0]: 300}, 0)


def test_an_old_job_can_be_chosen_and_says_that_it_is_simulated(config: Config, db: Database) -> None:
    with db.begin() as conn:
        for number in range(reports.JOBS + 2):
            new_trace(conn, name=f"job {number}")
        conn.execute(Statement("update jobs set model = :model where id = 1"), {"model": SIMULATED_MODEL})
    with serving(config, db.url) as address:
        for path in ("/figures", "/review"):
            status, _, text = ask(address, "GET", f"{path}?job=1", {})
            chosen = '<option value="1" selected>1: job 0</option>' in text
            assert (status, chosen, "<strong>Simulation.</strong>" in text) == (200, True, True), path
            assert f'<option value="{reports.JOBS + 2}">' in text
            assert '<option value="2"' not in text
        # The figures of all jobs include those that are not in the list.
        assert "<strong>Simulation.</strong>" in ask(address, "GET", "/figures", {})[2]
        assert "<strong>Simulation.</strong>" not in ask(address, "GET", "/figures?job=3", {})[2]


def test_chat(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        conn.execute(Statement("insert into channels (trace_id, name) values (:id, 'talk')"), {"id": trace})
        channel = messages.channels(conn, trace)["talk"]
        messages.add(conn, channel, f"Hello. {HOSTILE}")
    page.goto(f"/traces/{trace}")
    page.get_by_role("link", name="Chat").click()
    expect(page.locator("#chat")).to_contain_text("<script>alert(1)</script>")
    page.wait_for_load_state()  # before its script has run, Enter only adds a new line
    page.get_by_label("Your message").fill("Goo")
    page.get_by_label("Your message").dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    page.get_by_label("Your message").fill("Good morning. <b>Is it?</b>")
    page.keyboard.press("Enter")
    expect(page.locator(".said.person")).to_contain_text("Good morning. <b>Is it?</b>")
    with corpus.begin() as conn:
        assert [said.text for said in messages.since(conn, channel, 1)] == ["Good morning. <b>Is it?</b>"]
        messages.add(conn, channel, "It is.")
    expect(page.locator(".said.own").last).to_contain_text("It is.")
    assert page.locator(".said").count() == 3


def test_a_message_without_scripts_has_plain_line_ends(address: str, corpus: Database) -> None:
    """A browser sends line ends in a form as CR LF, and counts each as one character."""
    with corpus.begin() as conn:
        trace = new_trace(conn)
        conn.execute(Statement("insert into channels (trace_id, name) values (:id, 'talk')"), {"id": trace})
    lines = ["a"] * (MAX_MESSAGE_CHARS // 2)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
    fields = urlencode({"channel": "talk", "text": "\r\n".join(lines)})
    status, _, text = ask(address, "POST", f"/traces/{trace}/chat", headers, fields)
    assert status == 303, text
    with corpus.connect() as conn:
        said = messages.since(conn, messages.channels(conn, trace)["talk"], 0)
    assert [message.text for message in said] == ["\n".join(lines)]


def test_a_hostile_trace_is_shown_as_text(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, name=HOSTILE.replace("\x1b", ""))
        for type in BlockType:
            add_blocks(conn, trace, [HOSTILE.replace("\x1b", "")], type)
        hostile = {"text": HOSTILE.replace("\x1b", ""), "id": trace}
        change = "update blocks set title = :text, subagent = :text, question = :text, answer = true, "
        change += "probability = 0.9, exception = :text, ran = false, bm25_query = :text, tags = array[:text] "
        conn.execute(Statement(f"{change} where trace_id = :id"), hostile)
        failed = "update traces set status = 'failed', failure = :text, failure_kind = 'bug' where id = :id"
        conn.execute(Statement(failed), hostile)
        conn.execute(Statement("insert into events (trace_id, kind, detail) values (:id, :text, :text)"), hostile)
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    places = ["/", f"/jobs/{job}", "/search?q=%3Cscript%3Ealert(1)%3C/script%3E"]
    places += [f"/traces/{trace}{place}" for place in ("", "/about", "/blocks/1/candidates")]
    for place in places:
        page.goto(place)
        assert page.locator("img, main script, main style, main textarea").count() == 0, place
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>" if "search" not in place else "earch")
        assert "\u202e" not in page.content(), place
