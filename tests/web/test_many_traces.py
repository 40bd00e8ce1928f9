"""A job of 100,000 traces."""

import contextlib
import statistics
import time
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.web.serving import serving, tell
from tests.web.traces import new_trace
from weavegen.config import Config
from weavegen.database import Connection, Database, Statement
from weavegen.store import views
from weavegen.viewer import live
from weavegen.viewer.app import make_app

TRACES = 100_000
OTHERS = """
    insert into traces (job_id, number, bootstrap_id, params, seed, status, started_at, finished_at, ended_because,
      ticks, blocks, bytes, sampled_tokens, candidates, written, returned)
    select t.job_id, n, t.bootstrap_id, '{}', n, 'ended', now() - interval '1 h', now(), 'returned',
      2, 60 + n % 7, 60000 + n % 1000, 3000 + n % 500, 200, 50,
      jsonb_build_object('result', (array['won', 'lost'])[1 + n % 2])
    from traces t, generate_series(2, :many) n where t.id = :trace
"""
TICKS = """
    insert into ticks (trace_id, number, subagent, deadline, first_block, clock, reward, finished_at)
    select t.id, n, 'main', 3600, n * 6, 0, case when n > 0 then t.number % 1000 / 2000.0 end, now()
    from traces t, generate_series(0, 2) n where t.job_id = (select job_id from traces where id = :trace)
"""


@pytest.fixture(scope="module")
def many(corpus: Database) -> tuple[int, int]:
    """The ids of the job and of its first trace; those of the others follow."""
    with corpus.begin() as conn:
        trace = new_trace(conn, "many.py", "ended")
        values = {"trace": trace, "many": TRACES}
        conn.execute(Statement(OTHERS), values)
        conn.execute(Statement(TICKS), values)
        job = conn.execute(Statement("select job_id from traces where id = :trace"), values).scalar_one()
        conn.execute("analyze traces, ticks")
    with corpus.connect() as conn:
        for view in views.refresh(conn, ["tick_stats", "tick_sums"]):
            tell(f"{view.view}: {view.rows} rows in {view.seconds} s")
    return int(job), trace


def milliseconds(page: Page, path: str) -> str:
    """How long a page takes to load: the first time, and the median of five further times."""
    times = []
    for _ in range(6):
        page.goto("/search")
        began = time.perf_counter()
        page.goto(path, wait_until="load")
        times.append(1000 * (time.perf_counter() - began))
    return f"{times[0]:.0f} ms, then {statistics.median(times[1:]):.0f} ms"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("", 1),
        ("?page=999", 99_901),
        ("?sort=-reward", 999),
        ("?sort=-tokens&result=lost", 499),
        ("?reward_max=0.001&sort=-number", 100_000),
        ("?blocks_min=66&sort=errors", 6),
    ],
)
def test_the_page_of_a_job_has_the_right_traces(page: Page, many: tuple[int, int], query: str, first: int) -> None:
    job, trace = many
    tell(f"{TRACES} traces, /jobs/N{query}: {milliseconds(page, f'/jobs/{job}{query}')}")
    expect(page.locator("tbody .row")).to_have_count(100)
    expect(page.locator("tbody .row td").first).to_have_text(str(trace + first - 1))


def test_a_slow_sum_over_the_traces_is_computed_seldom(
    config: Config, corpus: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "JOBS_POLL_SECONDS", 0.01)
    reads = 0

    class Slow(Database):
        @contextlib.contextmanager
        def connect(self) -> Iterator[Connection]:
            nonlocal reads
            reads += 1
            time.sleep(0.2)
            with super().connect() as conn:
                yield conn

    app = make_app(Slow(corpus.url, 4), None)
    with serving(config, corpus.url, app=app) as address, urllib.request.urlopen(f"{address}/events/jobs") as stream:
        while not stream.readline().startswith(b"data"):
            pass
        time.sleep(1)  # in which it would be computed four times more
        app.state.closing = True
        stream.read()
    assert reads == 1


def test_the_first_page_lists_the_job(page: Page, many: tuple[int, int]) -> None:
    tell(f"{TRACES} traces, /: {milliseconds(page, '/')}")
    expect(page.locator(f"a[href='/jobs/{many[0]}']").first).to_be_visible()
