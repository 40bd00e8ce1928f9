"""One viewer over the sample corpus and some additional traces, and a page of the system's Chromium."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.sample_corpus import filled
from tests.web.serving import PATIENCE, Watched, launch, serving
from weavegen.config import Config
from weavegen.database import Database

AXE = "4.11.0"
"""Version of axe-core. It is downloaded from npm's registry to .axe and never committed."""
FOLDER = Path(__file__).parent / ".axe"


@pytest.fixture(scope="session")
def corpus(config: Config, template: str) -> Iterator[Database]:
    """A database with the sample corpus, for all tests of the session. Each test adds traces of its own."""
    with filled(config, template) as db:
        yield db


@pytest.fixture(scope="session")
def address(config: Config, corpus: Database) -> Iterator[str]:
    """The viewer's address."""
    with serving(config, corpus.url) as address:
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """A page that can only reach this machine. At its end no error must have occurred."""
    context = browser.new_context(base_url=address, viewport={"width": 1200, "height": 800})
    context.set_default_timeout(PATIENCE)
    watched = Watched(context.new_page())
    yield watched.page
    context.close()
    assert watched.wrong == []


@pytest.fixture(scope="session")
def axe() -> str:
    """Source of axe-core. The test is skipped if it can't be downloaded."""
    source = FOLDER / f"axe-{AXE}.min.js"
    if not source.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed, so axe-core can't be fetched")
        FOLDER.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:  # of its own: other processes fetch it too
            pack = [npm, "pack", f"axe-core@{AXE}", "--silent"]
            fetched = subprocess.run(pack, capture_output=True, text=True, timeout=120, cwd=folder, check=False)
            if fetched.returncode != 0:
                pytest.skip(f"axe-core could not be fetched: {fetched.stderr.strip()[:200]}")
            shutil.unpack_archive(Path(folder, f"axe-core-{AXE}.tgz"), folder)
            Path(folder, "package", "axe.min.js").replace(source)
    return source.read_text()
