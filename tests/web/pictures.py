"""Creates the pictures of docs/images: `make pictures`. A separate installation writes what they show."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.web.serving import launch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images"
LARGEST = 200_000
"""The largest size of a picture in bytes."""
LOST = """
    select b.trace_id, b.index from blocks b join candidates c on c.id = b.candidate_id
    join candidates o on o.step_id = c.step_id join penalties p on p.candidate_id = o.id
    where b.type = 'action' group by b.trace_id, b.index, b.candidate_id
    order by count(*) filter (where not p.compiles) between 1 and 3 desc, count(*) desc, 1, 2 limit 1
"""
"""A block some of whose candidates do not compile."""


class Installation:
    """A WEAVEGEN_HOME for the duration of the script."""

    def __init__(self, home: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "HOME") if name in os.environ}
        self.environ = {**kept, "WEAVEGEN_HOME": str(home), "PYTHONPATH": str(ROOT), "WEAVEGEN_USER": "you"}
        # Settings of parts that the pictures do not need.
        self.environ |= {"WEAVEGEN_FLOWER": "0", "WEAVEGEN_VIEWER": "0", "WEAVEGEN_MODEL": "sim"}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "weavegen.cli", *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words), env=self.environ, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def rows(self, query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("sql", "--json", query))
        return found


def fill(installation: Installation) -> None:
    """Write some traces: games, one by tree search, a conversation with messages, one that is still running."""
    installation.run("up")
    game = "bootstraps/tictactoe.py"
    installation.run("run", game, "-n", "6", "--ticks", "8", "--seed", "1", "--name", "games", "--json")
    pieces = ("tree_first=0", "tree_nodes=24", "tree_round=6", "tree_children=3", "tree_tokens=32")
    settings = [word for piece in pieces for word in ("--set", piece)]
    installation.run("run", game, "--ticks", "2", "--seed", "2", "--search", "tree", *settings, "--json")
    installation.run("run", game, "-n", "2", "--agent", "react", "--seed", "3", "--json")
    forked = json.loads(installation.run("fork", "1", "--at", "30", "--seed", "9", "--json"))
    installation.run("watch", str(forked["job"]), "--json")
    installation.run("refresh", "--json")
    installation.run("enqueue", "bootstraps/conversation.py", "--ticks", "400", "--seed", "4", "--json")


def shoot(page: Page, name: str) -> None:
    """Save a picture of the visible page."""
    page.wait_for_timeout(700)
    path = FOLDER / f"viewer-{name}.png"
    page.screenshot(path=path)
    size = path.stat().st_size
    if size > LARGEST:
        raise SystemExit(f"{path.name} has {size} bytes, {LARGEST} at most: show less of the page")
    print(f"{path.relative_to(ROOT)}: {size:,} bytes")  # noqa: T201


def draw(address: str, installation: Installation) -> None:
    [lost] = installation.rows(LOST)
    [node] = installation.rows(
        "select trace_id, block_index as index from candidates where depth is not null and type = 'action' "
        "order by id limit 1"
    )
    [talk] = installation.rows("select id from traces where job_id = (select max(job_id) from traces)")
    [forked] = installation.rows("select id from traces where fork_of = 1")
    [react] = installation.rows("select min(trace_id) as id from blocks where type = 'assistant'")
    block = f"/traces/{lost['trace_id']}/blocks/{lost['index']}"
    with sync_playwright() as playwright:
        browser = launch(playwright)
        wide = browser.new_page(base_url=address, viewport={"width": 1200, "height": 760})
        for name, path in (
            ("jobs", "/"),
            ("job", "/jobs/1"),
            ("trace", block),
            ("candidates", f"{block}/candidates"),
            ("differences", f"{block}/candidates?diff=1"),
            ("timeline", f"/traces/{lost['trace_id']}/ticks/2"),
            ("search", "/search?q=%2Bcorner+line"),
            ("figures", "/figures?job=1"),
            ("report", "/jobs/1/report"),
            ("compared", f"/compare/traces?a=1&b={forked['id']}"),
            ("review", "/review?job=1"),
        ):
            wide.goto(path)
            if name == "differences":
                wide.locator(".round").first.evaluate("round => round.scrollIntoView()")
            shoot(wide, name)
        wide.goto(f"/traces/{react['id']}/blocks/3")
        shoot(wide, "conversation")
        wide.goto(f"/traces/{node['trace_id']}/blocks/{node['index']}/candidates")
        wide.locator("section", has=wide.locator(".tree")).last.evaluate("tree => tree.scrollIntoView()")
        shoot(wide, "tree")
        wide.goto(f"/traces/{talk['id']}/chat")
        wide.get_by_label("Your message").fill("A sailing boat. And you?")
        wide.keyboard.press("Enter")
        wide.locator(".said.own").nth(1).wait_for(timeout=60_000)
        wide.emulate_media(color_scheme="dark")
        shoot(wide, "chat-dark")
        phone = browser.new_page(base_url=address, viewport={"width": 390, "height": 780}, color_scheme="dark")
        phone.goto(block)
        shoot(phone, "phone-dark")
        browser.close()


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="weavegen-pictures-"))
    installation = Installation(home)
    try:
        fill(installation)
        words = installation.command("serve", "--port", "0", "--json")
        with subprocess.Popen(words, env=installation.environ, cwd=ROOT, stdout=subprocess.PIPE, text=True) as viewer:
            assert viewer.stdout is not None
            try:
                said = (re.search(r'"url": "([^"]+)"', line) for line in viewer.stdout)
                found = next(filter(None, said), None)
                if found is None:
                    raise SystemExit("the viewer did not start")
                draw(found[1], installation)
            finally:
                viewer.terminate()
    finally:
        installation.run("down")
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
