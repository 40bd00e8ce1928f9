"""A viewer that runs in this process, requests to it, and a browser that reports errors."""

import contextlib
import http.client
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Playwright
from starlette.applications import Starlette

from weavegen.config import Config
from weavegen.store.session import pooled
from weavegen.viewer.app import Server, make_app, reader

CHROMIUM = "/usr/bin/chromium"
PATIENCE = 60_000
"""Timeout of a page in milliseconds, on a busy machine."""


@contextlib.contextmanager
def serving(config: Config, url: str, port: int = 0, app: Starlette | None = None) -> Iterator[str]:
    """Yields the address of a viewer over the database at `url`. `port` 0 chooses any. `app`: another viewer."""
    listener = socket.create_server(("127.0.0.1", port))
    app = app or make_app(reader(config, url), pooled(url))
    server = Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def launch(playwright: Playwright) -> Browser:
    """The system's Chromium."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


def tell(text: str) -> None:
    """Print a measured figure for a run with -s. Figures are never asserted."""
    sys.stderr.write(f"{text}\n")  # xdist passes on what a process writes there


@dataclass
class Watched:
    """A page, and the errors that a user should never see."""

    page: Page
    wrong: list[str] = field(default_factory=list)
    """Messages on the console, exceptions, and requests to other machines."""

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.wrong.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"exception: {error}"))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.asked(request.url))

    def asked(self, url: str) -> None:
        if urlsplit(url).hostname != "127.0.0.1":
            self.wrong.append(f"request to {url}")


def serious(page: Page, axe: str) -> list[str]:
    """The serious and critical findings of axe-core on a page."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


def ask(address: str, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, str, str]:
    """Status, Content-Security-Policy and text of a response."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["content-security-policy"], answer.read().decode()
    finally:
        connection.close()
