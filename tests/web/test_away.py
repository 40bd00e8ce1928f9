"""The database or the viewer becomes unreachable and returns while pages are open."""

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from psycopg import sql

from tests.support.database import administration
from tests.web.serving import PATIENCE, ask, serving
from tests.web.traces import action, add_blocks, new_trace
from weavegen.config import Config
from weavegen.database import Database
from weavegen.store import urls
from weavegen.viewer.live import NO_DATABASE


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A page that may be without a server. The errors that the browser's console then reports are expected."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@contextlib.contextmanager
def unreachable(config: Config, db: Database) -> Iterator[None]:
    """While this context is open the server refuses all connections to a database, and open ones are closed."""
    db.close()
    name = urls.parts(db.url)["dbname"]
    allow = sql.SQL("ALTER DATABASE {} WITH ALLOW_CONNECTIONS {}")
    with administration(config) as connection:
        connection.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            connection.execute(allow.format(sql.Identifier(name), sql.SQL("true")))


def written(db: Database, trace: int | None, numbers: range) -> int:
    """A trace that also has these blocks."""
    with db.begin() as conn:
        trace = trace or new_trace(conn)
        add_blocks(conn, trace, [action(number, 3) for number in numbers])
    return trace


def test_the_database_becomes_unreachable_and_returns(config: Config, db: Database, tab: Page) -> None:
    trace = written(db, None, range(110))
    with serving(config, db.url) as address:
        tab.goto(f"{address}/traces/{trace}")
        banner = tab.locator("#away")
        expect(banner).to_be_hidden()
        with unreachable(config, db):
            expect(banner).to_contain_text("The database does not answer")
            # Blocks that are scrolled into view now are requested until the server answers.
            tab.keyboard.press("G")
            expect(tab.locator("#b109")).to_have_count(0)
            other = tab.context.new_page()
            answer = other.goto(f"{address}/jobs/1")
            assert answer is not None
            assert answer.status == 503
            expect(other.locator("main")).to_contain_text(NO_DATABASE)
            expect(other.locator("main")).not_to_contain_text("Traceback")
            answer = other.goto(f"{address}/metrics")
            assert answer is not None
            assert (answer.status, answer.text()) == (503, "the database does not answer\n")
        expect(tab.locator("#b109")).to_be_in_viewport()
        written(db, trace, range(110, 113))
        expect(tab.locator("#b112")).to_be_attached()
        expect(banner).to_be_hidden()


def test_the_viewer_is_restarted(config: Config, db: Database, tab: Page) -> None:
    trace = written(db, None, range(10))
    url = db.url
    with serving(config, url) as address:
        tab.goto(f"{address}/traces/{trace}")
        tab.get_by_role("button", name="Follow").click()
        written(db, trace, range(10, 12))
        expect(tab.locator("#b11")).to_be_in_viewport()
    expect(tab.locator("#away")).to_contain_text("The viewer does not answer")
    written(db, trace, range(12, 40))
    with serving(config, url, urlsplit(address).port or 0):
        expect(tab.locator("#b39")).to_be_in_viewport()
        expect(tab.locator("#away")).to_be_hidden()
        assert tab.locator(".block").count() == 40


def test_a_query_that_the_database_refuses_is_told_as_such(config: Config, db: Database) -> None:
    trace = written(db, None, range(2))
    with db.begin() as conn:
        conn.execute("alter table bootstraps rename to something_else")
    with serving(config, db.url) as address:
        status, _, body = ask(address, "GET", f"/traces/{trace}", {})
    assert status == 500
    assert "The database refused the query: relation &#34;bootstraps&#34; does not exist" in body, body
    assert "weavegen up" in body
