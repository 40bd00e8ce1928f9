"""What a researcher does in a day, in one walk through the viewer over a whole installation: enqueue, watch, find the
worst tick, compare it with a fork, annotate ten blocks, export. On a desktop, in dark mode, and on a phone.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support import ROOT
from tests.support.installation import Installation
from tests.web.serving import PATIENCE, Watched, ask, serious, serving
from weavegen.store import urls

SCREENS = {
    "desktop": {"viewport": {"width": 1200, "height": 800}},
    "dark": {"viewport": {"width": 1200, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True},
}


@pytest.fixture(scope="module")
def viewer(installation: Installation) -> Iterator[str]:
    """The address of a viewer over the installation."""
    with serving(installation.config, urls.database_url(installation.config)) as address:
        yield address


@pytest.fixture(params=SCREENS)
def screen(request: pytest.FixtureRequest, browser: Browser, viewer: str) -> Iterator[Page]:
    """A page on each of the screens. At its end no error must have occurred."""
    context = browser.new_context(base_url=viewer, **SCREENS[request.param])
    context.set_default_timeout(PATIENCE)
    watched = Watched(context.new_page())
    yield watched.page
    context.close()
    assert watched.wrong == []


def test_a_walk(
    installation: Installation, viewer: str, screen: Page, axe: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def look(name: str) -> None:
        """Every page that is seen has no serious finding, and does not scroll sideways."""
        screen.screenshot(path=tmp_path / f"{name}.png")
        assert serious(screen, axe) == [], name
        assert screen.evaluate("document.documentElement.scrollWidth <= innerWidth"), name

    # Watch: the page is open before the job is enqueued, and shows it by itself.
    screen.goto("/")
    game = ROOT / "bootstraps" / "tictactoe.py"
    options = ("--ticks", "6", "--seed", "5", "--set", "top_k=0", "--name", f"walk {request.node.name}")
    job = installation.json("enqueue", game, "-n", "6", *options)["job"]
    row = screen.locator(f"a[href='/jobs/{job}']").first
    expect(row).to_be_visible()
    look("jobs")
    row.click()
    over = screen.locator("dt", has_text="Over").locator("xpath=following-sibling::dd")
    expect(over).to_have_text("6 of 6", timeout=180_000)

    # Find: the worst trace by its reward, and in it the first block that failed.
    assert installation.cli("refresh").returncode == 0
    screen.goto(f"/jobs/{job}")
    for order in ("descending", "ascending"):
        screen.get_by_role("link", name="Reward").click()
        expect(screen.locator(f"th[aria-sort={order}]")).to_contain_text("Reward")
    look("sorted")
    rewards = [float(text) for text in screen.locator("tbody .row td:nth-child(5)").all_inner_texts()]
    assert rewards == sorted(rewards)
    worst = screen.locator("tbody .row td:first-child a").first
    trace = int(worst.inner_text())
    worst.click()
    expect(screen.locator(".block").first).to_be_visible()
    screen.wait_for_load_state()  # Keys are listened to by a deferred script.
    screen.keyboard.press("e")
    failed = screen.locator(".block.current")
    expect(failed).to_have_class(re.compile("went-wrong|error"))
    index = int(str(failed.get_attribute("data-index")))
    look("worst")
    failed.get_by_role("link", name="tick").click()
    expect(screen).to_have_url(re.compile(rf"/traces/{trace}/ticks/\d+"))
    look("tick")

    # Understand: what exactly the model read before it wrote this block.
    screen.goto(f"/traces/{trace}/blocks/{index}/candidates")
    look("candidates")
    screen.get_by_role("link", name="this prompt").click()
    shown = screen.locator("pre.text").inner_text()
    look("prompt")
    before, _, _ = installation.cli("show", str(trace)).stdout.partition(f"#index {index}\n")
    header = before[before.rindex("#subagent") :]
    assert shown.count("#startblock") > 5
    assert header in shown[-2000:], "the header of the block itself is its end"
    assert before[-1500 : -len(header)] in shown, "the blocks before it are its own"
    assert ask(viewer, "GET", f"/traces/{trace}/blocks/0/prompt", {})[0] == 404, "nobody was asked for block 0"

    # Compare: a fork writes the failed block again.
    forked = installation.json("fork", str(trace), "--at", str(index), "--seed", "9")
    installation.wait(forked["job"])
    screen.goto(f"/traces/{trace}/about")
    screen.get_by_label("Compare with trace").fill(str(forked["traces"][0]))
    screen.keyboard.press("Enter")
    expect(screen.locator("main")).to_contain_text(f"is a fork of trace {trace} at block {forked['fork_at']}")
    look("compared")

    # Judge: ten blocks by keys, as a separate user for each screen.
    me = f"walker {request.node.name}"
    screen.goto(f"/review?job={job}")
    screen.get_by_label("You annotate as").fill(me)
    screen.get_by_role("button", name="Change").click()
    screen.goto(f"/review?job={job}")
    screen.keyboard.press("j")
    for number in range(10):
        expect(screen.locator("#review .block").nth(number)).to_have_class(re.compile("current"))
        screen.keyboard.press("x" if number % 2 else "y")
    expect(screen.locator("#review .block").nth(10)).to_have_class(re.compile("current"))
    look("review")
    said = "select verdict, count(*) from annotations where author = :me group by 1 order by 1"
    installation.until("select count(*) = 10 from annotations where author = :me", me=me)
    assert installation.sql(said, me=me) == [("bad", 5), ("good", 5)]

    # Export: the ten annotations are labels.
    where = f"source = 'annotated' and job_id = {job}"
    done = installation.cli("export", "--format", "verifier", "--where", where, "--out", tmp_path / "labels")
    assert done.returncode == 0, done.stderr
    rows = pq.ParquetDataset(tmp_path / "labels" / "data").read()
    assert sorted(rows["label"].to_pylist()) == [False] * 5 + [True] * 5
