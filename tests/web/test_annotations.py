"""People annotate traces, blocks and candidates, by keys, by mouse and without scripts."""

import re
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.places import rejected
from tests.web.serving import ask, serving
from tests.web.traces import HOSTILE, action, add_blocks, add_candidates, new_trace
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.viewer.app import make_app, reader

ME = configuration.load().user


def said(engine: Database, trace: int) -> list[tuple[Any, ...]]:
    """Author, verdict, labels and note of all annotations of a trace, and the index of the block that each is about."""
    query = """
        select a.author, a.verdict, a.labels, a.note, coalesce(b.index, c.block_index) from annotations a
        left join blocks b on b.id = a.block_id left join candidates c on c.id = a.candidate_id
        where a.trace_id = :trace order by a.id
    """
    with engine.connect() as conn:
        return [tuple(row) for row in conn.execute(Statement(query), {"trace": trace})]


@pytest.fixture
def trace(corpus: Database) -> int:
    """A trace of three blocks, of which the second has three candidates."""
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        add_blocks(conn, trace, [action(number, 2) for number in range(3)])
        add_candidates(conn, trace, 1, [action(1, 2), "lost = 1", "lost = 2"])
    return trace


def test_a_key_annotates_a_block_and_takes_it_back(page: Page, corpus: Database, trace: int) -> None:
    page.goto(f"/traces/{trace}/blocks/1")
    expect(page.locator("#b1.current")).to_have_count(1)
    good = page.locator("#b1").get_by_role("button", name="Good")
    page.keyboard.press("y")
    expect(good).to_have_attribute("aria-pressed", "true")
    assert said(corpus, trace) == [(ME, "good", [], "", 1)]
    page.keyboard.press("x")
    expect(good).to_have_attribute("aria-pressed", "false")
    assert said(corpus, trace) == [(ME, "bad", [], "", 1)]
    page.keyboard.press("a")
    page.keyboard.type("lucky, !concise,, lucky")
    page.keyboard.press("Tab")
    page.keyboard.type("It guessed.")
    page.keyboard.press("Enter")
    expect(page.locator("#b1 .said-of")).to_contain_text("It guessed.")
    assert said(corpus, trace) == [(ME, "bad", ["lucky", "!concise"], "It guessed.", 1)]
    page.keyboard.press("x")
    expect(page.locator("#b1 .said-of .chip.bad")).to_have_count(0)
    assert said(corpus, trace) == [(ME, None, ["lucky", "!concise"], "It guessed.", 1)]
    page.keyboard.press("Y")
    expect(page.locator("#of-trace .chip.good")).to_be_visible()
    assert said(corpus, trace)[1] == (ME, "good", [], "", None)
    page.keyboard.press("Y")
    expect(page.locator("#of-trace .chip")).to_have_count(0)
    assert len(said(corpus, trace)) == 1


def test_a_block_is_annotated_by_its_candidate_and_rejected_ones_too(page: Page, corpus: Database, trace: int) -> None:
    page.goto(f"/traces/{trace}/blocks/1/candidates")
    page.locator(".candidate.chosen").get_by_role("button", name="Bad").click()
    expect(page.locator(".candidate.chosen .said-of")).to_contain_text("bad")
    page.keyboard.press("j")
    page.keyboard.press("y")
    expect(page.locator(".candidate:not(.chosen) .said-of")).to_contain_text("good")
    page.goto(f"/traces/{trace}/blocks/1")
    expect(page.locator("#b1 .said-of")).to_contain_text("bad")
    page.goto(f"/traces/{trace}/blocks/2")
    page.locator("#b2").get_by_role("button", name="Good").click()
    expect(page.locator("#b2 .said-of")).to_be_visible()
    with corpus.connect() as conn:
        about = "select candidate_id is null, block_id is null from annotations where trace_id = :id order by id"
        assert conn.execute(Statement(about), {"id": trace}).all() == [(False, True), (False, True), (True, False)]


def test_people_annotate_under_their_names(page: Page, corpus: Database, trace: int) -> None:
    page.goto(f"/traces/{trace}/blocks/1")
    page.keyboard.press("y")
    expect(page.locator("#b1 .said-of")).to_have_count(1)
    page.goto("/review")
    page.get_by_label("You annotate as").fill("Zoë; Path=/")
    page.get_by_role("button", name="Change").click()
    expect(page.get_by_label("You annotate as")).to_have_value("Zoë; Path=/")
    page.goto(f"/traces/{trace}/blocks/1")
    page.keyboard.press("x")
    expect(page.locator("#b1 .said-of")).to_have_count(2)
    assert [row[:2] for row in said(corpus, trace)] == [(ME, "good"), ("Zoë; Path=/", "bad")]


def test_a_changed_name_shows_the_same_page_of_the_queue(page: Page, address: str) -> None:
    page.goto("/review?job=1&page=1&since=5")
    page.get_by_label("You annotate as").fill("Zoë")
    page.get_by_role("button", name="Change").click()
    expect(page).to_have_url(re.compile(r"/review\?job=1&page=1&since=5$"))
    expect(page.get_by_label("You annotate as")).to_have_value("Zoë")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
    status, _, text = ask(address, "POST", "/annotator", headers, "name=x&job=//other")
    assert (status, "is not a number" in text) == (400, True), text


def test_annotating_without_a_script(browser: Browser, address: str, corpus: Database, trace: int) -> None:
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"/traces/{trace}/blocks/1/candidates")
    page.locator(".candidate:not(.chosen)").first.get_by_role("button", name="Bad").click()
    expect(page).to_have_url(re.compile(r"/blocks/1/candidates#c\d+$"))
    expect(page.locator(".candidate:not(.chosen) .said-of")).to_contain_text("bad")
    page.goto(f"/traces/{trace}")
    page.locator("#b0 summary").click()
    page.locator("#b0").get_by_label("Note").fill("Read it.")
    page.keyboard.press("Enter")
    expect(page.locator("#b0 .said-of")).to_contain_text("Read it.")
    assert [row[1:4] for row in said(corpus, trace)] == [("bad", [], ""), (None, [], "Read it.")]
    context.close()


def test_an_annotation_stays_with_its_candidate_and_goes_with_its_block(
    page: Page, corpus: Database, trace: int
) -> None:
    page.goto(f"/traces/{trace}/blocks/1")
    page.keyboard.press("y")
    page.locator("#b2").get_by_role("button", name="Bad").click()
    expect(page.locator(".said-of")).to_have_count(2)
    with corpus.begin() as conn:
        conn.execute(Statement("delete from blocks where trace_id = :trace"), {"trace": trace})
    assert [row[1] for row in said(corpus, trace)] == ["good"]


def test_hostile_annotations_are_text(page: Page, corpus: Database, trace: int) -> None:
    text = HOSTILE.replace("\x1b", "")
    with corpus.begin() as conn:
        add = "insert into annotations (trace_id, author, labels, note) values (:id, :text, array[:text], :text)"
        conn.execute(Statement(add), {"id": trace, "text": text})
    page.goto(f"/traces/{trace}")
    expect(page.locator("#of-trace")).to_contain_text("<script>alert(1)</script>")
    assert page.locator("main img, main script, main style, main textarea").count() == 0
    assert "\u202e" not in page.content()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ("verdict=good", "an annotation needs a trace"),
        ("trace=x&verdict=good", "is not a number"),
        ("trace=987654321&verdict=good", "nothing to annotate"),
        ("trace={}&index=99&verdict=good", "nothing to annotate"),
        ("trace={}&candidate=987654321&verdict=good", "nothing to annotate"),
        ("trace={}&verdict=great", "a verdict is good or bad, and not"),
        (f"trace={{}}&labels={'x' * 101}", "at most 20 labels"),
        (f"trace={{}}&labels={','.join(map(str, range(21)))}", "at most 20 labels"),
        (f"trace={{}}&note={'x' * 4001}", "a note has at most 4,000 characters"),
    ],
)
def test_wrong_annotations_are_refused(address: str, corpus: Database, trace: int, fields: str, says: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
    status, _, text = ask(address, "POST", "/annotations", headers, fields.format(trace))
    assert (status, says in text) == (400, True), text
    assert said(corpus, trace) == []


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 101, "\x00"], ids=ascii)
def test_what_is_no_name_is_refused(address: str, name: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
    status, _, text = ask(address, "POST", "/annotator", headers, urlencode({"name": name}))
    assert (status, "is not a name" in text) == (400, True), text


def test_a_cookie_that_is_no_name_is_ignored(address: str, corpus: Database, trace: int) -> None:
    for cookie in ("annotator=%00", "annotator=", f"annotator={'x' * 101}", "annotator=%FF%0A"):
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address, "Cookie": cookie}
        assert ask(address, "POST", "/annotations", headers, f"trace={trace}&note=n")[0] == 303
    assert [row[0] for row in said(corpus, trace)] == [ME]


@pytest.mark.parametrize("origin", [None, "https://attacker.example", "null"])
def test_other_sites_can_not_annotate(address: str, corpus: Database, trace: int, origin: str | None) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"} | ({"Origin": origin} if origin else {})
    for path, fields in (("/annotations", f"trace={trace}&verdict=good"), ("/annotator", "name=x")):
        assert ask(address, "POST", path, headers, fields)[0] == 403
    assert said(corpus, trace) == []


def test_a_viewer_of_a_network_has_no_forms(config: Config, corpus: Database, trace: int) -> None:
    url = corpus.url
    with serving(config, url, app=make_app(reader(config, url), None)) as address:
        for path in (f"/traces/{trace}", "/review", f"/traces/{trace}/blocks/1/candidates"):
            status, _, text = ask(address, "GET", path, {})
            assert (status, '<form class="annotate"' in text, "/annotator" in text) == (200, False, False)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": address}
        status, _, text = ask(address, "POST", "/annotations", headers, f"trace={trace}&verdict=good")
        assert (status, "read-only" in text) == (400, True)
    assert said(corpus, trace) == []


# ---------------------------------------------------------------------------------------------------- the queue


@pytest.fixture
def queued(corpus: Database) -> tuple[int, int]:
    """A job and its trace: twelve executed blocks, of which four are worth a look and the others are alike."""
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        add_blocks(conn, trace, [action(number, 2) for number in range(12)])
        common = "update blocks set ran = false, exception = 'KeyError', score = -6 where trace_id = :id"
        for change in (
            common,
            "update blocks set ran = true, exception = null, score = 6 where trace_id = :id and index = 1",
            "update blocks set score = 6 where trace_id = :id and index = 5",
            "update blocks set exception = 'OSError', score = -2 where trace_id = :id and index = 7",
        ):
            conn.execute(Statement(change), {"id": trace})
        for author, verdict in (("anna", "good"), ("ben", "bad")):
            add = "insert into annotations (trace_id, block_id, author, verdict, labels, note) "
            add += "select trace_id, id, :author, :verdict, '{}', '' from blocks where trace_id = :id and index = 9"
            conn.execute(Statement(add), {"author": author, "verdict": verdict, "id": trace})
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    return int(job), trace


def order(page: Page) -> list[int]:
    return [int(str(one.get_attribute("data-index"))) for one in page.locator("#review .block").all()]


def test_the_queue_begins_with_what_is_most_worth_a_look(page: Page, queued: tuple[int, int]) -> None:
    job, _ = queued
    page.goto(f"/review?job={job}")
    # A rare error (1 + 0.12), people who disagree (1 + 0.1), a judge who was wrong (0.998 + 0.1), and the others. What
    # ran as the judge had said is the last.
    assert order(page) == [7, 9, 5, 0, 2, 3, 4, 6, 8, 10, 11, 1]
    first = page.locator("#review .block").first
    expect(first).to_contain_text("the only such error")
    expect(first).to_contain_text("evaluator 12%, outcome 0%")
    expect(page.locator("#review .block").nth(1)).to_contain_text("people disagree")


def test_a_block_without_a_score_has_no_evaluator_to_disagree(
    address: str, corpus: Database, queued: tuple[int, int]
) -> None:
    job, trace = queued
    with corpus.begin() as conn:
        conn.execute(Statement("update blocks set score = null where trace_id = :id"), {"id": trace})
    status, _, text = ask(address, "GET", f"/review?job={job}", {})
    assert (status, ", outcome " in text) == (200, False)
    # Only the number of such errors, of which there are ten.
    assert re.findall(r'reviewing">([^<]*)<', text)[2:] == ["0.10"] * 9 + ["0.00"]


def test_ten_blocks_are_annotated_by_eleven_keys(page: Page, corpus: Database, queued: tuple[int, int]) -> None:
    job, trace = queued
    page.goto(f"/review?job={job}")
    before = order(page)
    page.keyboard.press("j")
    for number in range(10):
        expect(page.locator("#review .block").nth(number)).to_have_class(re.compile("current"))
        page.keyboard.press("y" if number % 2 else "x")
    expect(page.locator("#review .block").nth(10)).to_have_class(re.compile("current"))
    mine = [row for row in said(corpus, trace) if row[0] == ME]
    assert [(row[1], row[4]) for row in mine] == [("good" if n % 2 else "bad", before[n]) for n in range(10)]
    page.reload()
    assert order(page)[:2] == before[10:]


def test_no_page_of_the_queue_leaves_out_what_nobody_annotated(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn, status="ended")
        add_blocks(conn, trace, [action(number, 2) for number in range(45)])
        conn.execute(Statement("update blocks set ran = true where trace_id = :id"), {"id": trace})
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    page.goto(f"/review?job={job}")
    seen = order(page)
    with corpus.begin() as conn:
        add = "insert into annotations (trace_id, block_id, author, verdict, labels, note) "
        add += "select trace_id, id, :me, 'good', '{}', '' from blocks where trace_id = :id and index = any(:seen)"
        conn.execute(Statement(add), {"me": ME, "id": trace, "seen": seen})
    for number in (1, 2):
        page.get_by_role("link", name="Later").click()
        expect(page.get_by_text(f"page {number + 1}")).to_be_visible()
        seen += order(page)
    assert sorted(seen) == list(range(45))
    page.goto(f"/review?job={job}")
    assert not set(order(page)) & set(seen[:20])


def test_another_model_that_disagrees_is_worth_a_look(page: Page, corpus: Database) -> None:
    trace, _ = rejected(corpus)
    answered = """
        with c as (insert into campaigns (name, over, condition, rubric, rubric_version, version)
          values ('again', 'blocks', 'true', '', 'r', '0') returning id),
        g as (insert into campaign_batches (campaign_id, trace_id, number) select id, :trace, 0 from c returning id),
        i as (insert into campaign_items (batch_id, candidate_id, block_id)
          select g.id, b.candidate_id, b.id from g, blocks b
          where b.trace_id = :trace and b.ran is not null and exists (
            select from scores s where s.candidate_id = b.candidate_id and s.score <> 0)
          order by b.index limit 1 returning id, candidate_id)
        insert into answers (item_id, question, yes, no, score, model, server)
        select i.id, s.question, 0.5, 0.5, -s.score, 'other', 'http://s'
        from i join scores s on s.candidate_id = i.candidate_id order by s.id limit 1
    """
    with corpus.begin() as conn:
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
        conn.execute(Statement(answered), {"trace": trace})
    try:
        page.goto(f"/review?job={job}")
        expect(page.get_by_text("models disagree", exact=True)).to_have_count(1)
        expect(page.locator("#review .block").first).to_contain_text("models disagree")
    finally:
        with corpus.begin() as conn:
            conn.execute(Statement("delete from campaigns where name = 'again'"))
