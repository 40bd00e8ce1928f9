"""A text browser. It reaches what the box can reach: by default, servers in the box itself."""

import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING

from .html_text import Link, to_text
from .window import Window

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

WINDOW = 40
"""Lines shown at once."""
MAX_PAGE_BYTES = 2 * 2**20
"""Bytes read of a page."""
TIMEOUT_SECONDS = 10
"""Time to wait for an answer."""


class WeaveBrowser(Window):
    """Shows web pages as text: `browser = WeaveBrowser(self, "http://localhost:8000/")`.

    Later `self.tools["browser"]`. Links are numbered, as in `the rules [3]`; `follow(3)` opens that one.
    """

    def __init__(self, agent: "Subagent", url: str | None = None):
        self.url, self.status = "", ""
        self.lines: list[str] = []
        self.top = 0
        self.page_links: list[Link] = []
        self.history: list[str] = []
        super().__init__(agent, "WeaveBrowser", "browser")
        if url is not None:
            try:
                self.open(url)
            except BaseException:
                self.close()
                raise

    def open(self, url: str) -> str:
        """Load a page, and give its text. An answer such as 404 is a page, too; no answer raises OSError."""
        self.check_open()
        previous = self.url
        self.load(url)
        if previous:
            self.history.append(previous)
        return "\n".join(self.lines)

    def links(self) -> list[tuple[int, str, str]]:
        """Number, text and address of each link of the page."""
        return [(number, link.text, link.url) for number, link in enumerate(self.page_links, 1)]

    def follow(self, number: int) -> str:
        """Open the link of that number, and give the page's text."""
        if type(number) is not int or not 1 <= number <= len(self.page_links):
            raise ValueError(f"there is no link {number!r}: this page has {len(self.page_links)}, numbered from 1")
        return self.open(self.page_links[number - 1].url)

    def back(self) -> str:
        """Return to the page before, and give its text."""
        self.check_open()
        if not self.history:
            raise ValueError("there is no page to go back to")
        self.load(self.history[-1])
        self.history.pop()
        return "\n".join(self.lines)

    def down(self) -> None:
        """Show the next lines of the page."""
        self.top = max(min(self.top + WINDOW, len(self.lines) - WINDOW), 0)

    def up(self) -> None:
        """Show the lines before."""
        self.top = max(self.top - WINDOW, 0)

    def render(self, agent: "Subagent | None" = None) -> str:
        """The lines of the page that are in the window."""
        if not self.url:
            return 'No page is open: self.tools["browser"].open("http://localhost:8000/")'
        shown = self.lines[self.top : self.top + WINDOW]
        where = f"lines {self.top + 1} to {self.top + len(shown)} of {len(self.lines)}"
        rest = "; down() and up() show others" if len(self.lines) > WINDOW else ""
        return "\n".join([f"{self.url} ({self.status}, {where}{rest})", *shown])

    def load(self, url: str) -> None:
        if "://" not in url:
            url = f"http://{url}"
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url} can't be opened: only addresses that begin with http:// or https://")
        # Neither proxies nor urllib's other schemes: a server must not redirect to file:///.
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPRedirectHandler,
            urllib.request.HTTPDefaultErrorHandler,
            urllib.request.HTTPErrorProcessor,
        ):
            opener.add_handler(handler())
        request = urllib.request.Request(url, headers={"User-Agent": "WeaveBrowser", "Accept": "text/html, */*"})
        try:
            answer = opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            answer = error
        except urllib.error.URLError as error:
            raise ConnectionError(f"{url} does not answer: {error.reason}") from None
        with answer:
            data = answer.read(MAX_PAGE_BYTES + 1)
            kind, charset = answer.headers.get_content_type(), answer.headers.get_content_charset() or "utf-8"
            self.url, self.status, self.top = answer.url, f"{answer.status} {answer.reason}".strip(), 0
        self.lines, self.page_links = read(data, kind, charset, self.url)


def read(data: bytes, kind: str, charset: str, url: str) -> tuple[list[str], list[Link]]:
    """Return the lines and links of an answer's body."""
    cut = ["(the page is larger than 2 MiB: this is its beginning)"] if len(data) > MAX_PAGE_BYTES else []
    try:
        text = data[:MAX_PAGE_BYTES].decode(charset, "replace")
    except LookupError:
        text = data[:MAX_PAGE_BYTES].decode("utf-8", "replace")
    if kind in ("text/html", "application/xhtml+xml"):
        lines, links = to_text(text, url)
        return cut + lines, links
    if kind.startswith("text/") or kind in ("application/json", "application/xml", "application/javascript"):
        return cut + text.splitlines(), []
    return [f"(this is no text: {kind}, {len(data):,} bytes)"], []
