"""The report of a job, in the viewer."""

import pytest
from playwright.sync_api import Page, expect

from tests.web.traces import HOSTILE, add_blocks, new_trace
from weavegen.database import Database, Statement


def test_it_is_opened_from_the_job_and_downloaded(page: Page) -> None:
    page.goto("/jobs/1")
    with page.expect_download() as got:
        page.get_by_role("link", name="download").click()
    assert got.value.suggested_filename == "report-1.html"
    page.get_by_role("link", name="Report").click()
    expect(page.get_by_role("heading", name="Why candidates lost")).to_be_visible()
    # The policy in the response's headers allows the page's own style, like the policy in the page.
    assert page.evaluate("getComputedStyle(document.querySelector('.plot .bar')).fillOpacity") == "0.65"
    saved = got.value.path().read_text()
    assert saved.count("<svg") == page.locator("svg.plot").count() > 5


@pytest.mark.parametrize("width", [360, 1200])
def test_it_is_no_wider_than_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 740})
    page.goto("/jobs/1/report")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_recorded_text_stays_text(page: Page, corpus: Database) -> None:
    hostile = HOSTILE.replace("\x1b", "")
    with corpus.begin() as conn:
        trace = new_trace(conn, name=hostile, status="failed")
        add_blocks(conn, trace, [hostile])
        fail = "update traces set failure = :text, failure_kind = 'bug', finished_at = now() where id = :id"
        conn.execute(Statement(fail), {"text": hostile, "id": trace})
        job = conn.execute(Statement("select job_id from traces where id = :id"), {"id": trace}).scalar_one()
    page.goto(f"/jobs/{job}/report")
    expect(page.locator("h1")).to_contain_text("<script>alert(1)</script>")
    expect(page.locator("main pre").first).to_contain_text("<script>alert(1)</script>")
    assert page.locator("img, script, main style, main textarea").count() == 0
    assert "\u202e" not in page.content()
    # The trace ended after the refresh of the views, which this page can't do.
    expect(page.locator("header")).to_contain_text("Some figures are older than the job's end")


def test_the_report_of_an_unknown_job(page: Page) -> None:
    answer = page.request.get("/jobs/987654/report")
    assert answer.status == 404
    assert "there is no job 987654" in answer.text()
