"""Requests to the toolsmith in the viewer: entered, watched, answered and cancelled in a browser."""

import re
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.web.serving import PATIENCE, Watched, ask
from weavegen.database import Database
from weavegen.store import requests

OBJECTIVE = "Which words are most frequent in the text?"
"""The simulation asks which text is meant."""


@pytest.fixture(scope="module")
def place() -> Iterator[Installation]:
    port = free_port()
    with installed(WEAVEGEN_VIEWER=str(port)) as started:
        until(lambda: reachable(port), "the viewer does not answer")
        yield started


def reachable(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_requests_are_entered_answered_and_cancelled(browser: Browser, place: Installation) -> None:
    watched = Watched(browser.new_page(base_url=f"http://127.0.0.1:{place.environ['WEAVEGEN_VIEWER']}"))
    page = watched.page
    page.goto("/requests")
    page.get_by_label("Objective").fill(OBJECTIVE)
    page.get_by_label("Requirements").fill("a list\n\nat most three words\n")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="Request 1")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="at most three words")).to_be_visible()
    expect(page.get_by_text("The simulated model writes this text.")).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("It asks|Result"))).to_be_visible(timeout=PATIENCE)
    assert place.sql("select requirements from requests") == [(["a list", "at most three words"],)]
    asking: list[int] = []
    while len(asking) < 2:  # whether the simulation asks is chance, also with a seed
        number = place.json("request", "create", "-o", OBJECTIVE, "--seed", "1")["id"]
        page.goto(f"/requests/{number}")
        expect(page.get_by_role("heading", name=re.compile("It asks|Result"))).to_be_visible(timeout=PATIENCE)
        asking += [number] if page.get_by_role("heading", name="It asks").is_visible() else []
        assert number < 12
    page.get_by_text("Cancel it").click()
    page.get_by_label("Why?").fill("no longer needed")
    page.get_by_role("button", name="Cancel the request").click()
    expect(page.locator("tbody")).to_contain_text("no longer needed")
    page.goto("/requests")
    page.get_by_role("link", name=str(asking[0]), exact=True).click()
    page.get_by_label("Your answer").fill('"the cat and the dog and the end"')
    page.get_by_role("button", name="Answer").click()
    expect(page.locator("tbody")).to_contain_text("the cat and the dog")
    expect(page.get_by_role("heading", name="Result")).to_be_visible(timeout=PATIENCE)
    query = "select status from requests where id = any(:ids) order by id"
    [[answered], [cancelled]] = place.sql(query, ids=asking)
    assert answered in ("SUCCEEDED", "FAILED")  # the simulation gives up by chance
    assert cancelled == "CANCELED"
    assert watched.wrong == []
    page.close()


def test_a_request_that_is_being_cancelled_is_not_reloaded(address: str, corpus: Database) -> None:
    """A reload would lose the reason that is being typed. No trace works on this request yet."""
    with corpus.begin() as conn:
        number = requests.insert(conn, requests.RequestSpec("Count the words."), "ada")
    status, _, text = ask(address, "GET", f"/requests/{number}", {})
    assert (status, 'http-equiv="refresh"' in text, 'href="?cancel=1"' in text) == (200, True, True)
    status, _, text = ask(address, "GET", f"/requests/{number}?cancel=1", {})
    assert (status, 'http-equiv="refresh"' in text, "The reason is recorded." in text) == (200, False, True)


def test_what_can_not_be_accepted_is_said(browser: Browser, place: Installation) -> None:
    page = browser.new_page(base_url=f"http://127.0.0.1:{place.environ['WEAVEGEN_VIEWER']}")
    headers = {"Origin": f"http://127.0.0.1:{place.environ['WEAVEGEN_VIEWER']}"}
    before = place.sql("select count(*) from requests")
    for path, fields, says in (
        ("/requests", {"objective": " "}, "the objective is empty"),
        ("/requests", {"objective": "x" * 20_000}, "longer than"),
        ("/requests/987654", {"do": "answer", "text": "yes"}, "no request 987654"),
        ("/requests/987654", {"do": "sing", "text": "yes"}, "one of answer, cancel"),
    ):
        done = page.request.post(path, form=fields, headers=headers)
        assert (done.status, says in done.text()) == (400, True), done.text()
    assert page.request.post("/requests", form={"objective": "x"}).status == 403, "from another site"
    assert place.sql("select count(*) from requests") == before
    page.close()
