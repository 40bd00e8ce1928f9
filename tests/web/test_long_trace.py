"""A trace of 10,000 blocks and 10 MB."""

import time

from playwright.sync_api import Page, expect

from tests.web.serving import tell
from tests.web.traces import action, add_blocks, new_trace
from weavegen.database import Database, Statement

BLOCKS = 10_000
SEEN = """id => {
    const box = document.getElementById(id)?.getBoundingClientRect();
    return box && box.bottom > 0 && box.top < innerHeight;
}"""


def test_it_opens_and_scrolls(page: Page, corpus: Database) -> None:
    with corpus.begin() as conn:
        trace = new_trace(conn)
        add_blocks(conn, trace, [action(number, 18) for number in range(BLOCKS)])
        size = conn.execute(Statement("select bytes from traces where id = :id"), {"id": trace}).scalar_one()
    assert size > 10_000_000
    page.goto("/")  # so that the browser has started, but nothing of the trace is cached
    for place, block in (("", 0), (f"/blocks/{BLOCKS - 10}", BLOCKS - 10), ("/blocks/5000", 5000)):
        began = time.perf_counter()
        page.goto(f"/traces/{trace}{place}", wait_until="commit")
        page.wait_for_function(SEEN, arg=f"b{block}", polling="raf")
        seconds = time.perf_counter() - began
        tell(f"{BLOCKS} blocks, {size / 1e6:.1f} MB: block {block} is seen after {seconds:.2f} s")
    expect(page.locator("#b5000.current")).to_have_count(1)
    gaps = page.evaluate(
        """async () => {
            const gaps = []; let last = performance.now();
            for (let frame = 0; frame < 240; frame++) {
                scrollBy(0, 120);
                await new Promise(requestAnimationFrame);
                gaps.push(performance.now() - last); last = performance.now();
            }
            return gaps.sort((a, b) => a - b);
        }"""
    )
    tell(f"scrolling: a frame takes {gaps[len(gaps) // 2]:.0f} ms (median), {gaps[-3]:.0f} ms (99 %)")
    page.wait_for_load_state("networkidle")
    assert page.locator(".block").count() < 1_500  # blocks far from the view are removed again
    page.wait_for_function("[...document.querySelectorAll('.block')].some(b => b.getBoundingClientRect().top > 0)")
