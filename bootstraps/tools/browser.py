"""A text browser. It reaches what the box can reach: by default, servers in the box itself."""

import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .chromium import PACKAGE, PROGRAMS, SHOWN_NOTES, Chromium
from .html_text import Link, to_text
from .terminal import program
from .window import Window

if TYPE_CHECKING:
    from weavegen.box.api import Subagent

WINDOW = 40
"""Lines shown at once."""
MAX_PAGE_BYTES = 2 * 2**20
"""Bytes read of a page."""
TIMEOUT_SECONDS = 10
"""Time to wait for an answer."""
HTML = ("text/html", "application/xhtml+xml")
FORM = re.compile(rb"<(?:form|script|button|input|select|textarea)[\s>]", re.IGNORECASE)
ONLY_READS = "(This page has forms or JavaScript: WeaveBrowser(self, url, javascript=True) runs them.)"


class WeaveBrowser(Window):
    """Shows web pages as text: `browser = WeaveBrowser(self, "http://localhost:8000/")`.

    Later `self.tools["browser"]`. Links are numbered, as in `the rules [3]`; `follow(3)` opens that one.
    `WeaveBrowser(self, url, javascript=True)` is Chromium: it runs JavaScript, and its form fields and buttons have
    numbers too: fill(4, "text"), select(5, "Red"), check(6), click(7), press("Enter"), submit().
    """

    def __init__(self, agent: "Subagent", url: str | None = None, javascript: bool = False):
        self.url, self.status = "", ""
        self.lines: list[str] = []
        self.top = 0
        self.page_links: list[Link] = []
        self.history: list[str] = []
        self.only_reads = ""
        self.chromium: Chromium | None = None
        if javascript:
            program(PROGRAMS, PACKAGE)
        super().__init__(agent, "WeaveBrowser", "browser")
        try:
            if javascript:
                self.chromium = Chromium()
            if url is not None:
                self.open(url)
        except BaseException:
            self.close()
            raise

    # ---- pages

    def open(self, url: str) -> str:
        """Load a page, and give its text. An answer such as 404 is a page, too; no answer raises OSError."""
        self.check_open()
        url = address(url)
        if self.chromium is not None:
            self.chromium.open(url)
            return self.take(from_top=True)
        previous = self.url
        self.load(url)
        if previous:
            self.history.append(previous)
        return "\n".join(self.lines)

    def links(self) -> list[tuple[int, str, str]]:
        """Number, text and address of each link of the page."""
        if self.chromium is not None:
            self.read()
            return [(one.number, one.text, str(one.value)) for one in self.chromium.controls if one.kind == "link"]
        return [(number, link.text, link.url) for number, link in enumerate(self.page_links, 1)]

    def follow(self, number: int) -> str:
        """Open the link of that number, and give the page's text."""
        if self.chromium is not None:
            return self.act("follow", number)
        if type(number) is not int or not 1 <= number <= len(self.page_links):
            raise ValueError(f"there is no link {number!r}: this page has {len(self.page_links)}, numbered from 1")
        return self.open(self.page_links[number - 1].url)

    def back(self) -> str:
        """Return to the page before, and give its text."""
        self.check_open()
        if self.chromium is not None:
            self.chromium.back()
            return self.take(from_top=True)
        if not self.history:
            raise ValueError("there is no page to go back to")
        self.load(self.history[-1])
        self.history.pop()
        return "\n".join(self.lines)

    # ---- forms and buttons, with javascript=True

    def controls(self) -> list[tuple[int, str, str, Any]]:
        """Number, kind, text and value of each field and button of the page."""
        chromium = self.real()
        self.read()
        return [(one.number, one.kind, one.text, one.value) for one in chromium.controls if one.kind != "link"]

    def fill(self, number: int, text: str | float) -> str:
        """Put a text into a field, in the place of what was there, and give the page's text."""
        return self.act("fill", number, str(text))

    def select(self, number: int, choice: str | Iterable[str]) -> str:
        """Choose from a list, by the text or the value of a choice (several, if the list takes several)."""
        choices = [choice] if isinstance(choice, str) else [str(one) for one in choice]
        return self.act("select", number, choices)

    def check(self, number: int, on: bool = True) -> str:
        """Check a box, uncheck it (`on=False`), or choose one of several radio buttons."""
        return self.act("check", number, bool(on))

    def click(self, number: int) -> str:
        """Click on a button, a link or anything else that has a number, and give the page's text."""
        return self.act("click", number)

    def submit(self, number: int | None = None) -> str:
        """Send the form that has the field of this number, or the field used last, and give the next page's text."""
        return self.act("submit", number)

    def press(self, key: int | str) -> str:
        """Press a key in the field used last: "Enter", "Tab", "ArrowLeft", "a". A number is clicked on."""
        if type(key) is int:
            return self.click(key)
        self.real().press(str(key))
        return self.take()

    # ---- the view

    def down(self) -> None:
        """Show the next lines of the page."""
        self.top = max(min(self.top + WINDOW, len(self.lines) - WINDOW), 0)

    def up(self) -> None:
        """Show the lines before."""
        self.top = max(self.top - WINDOW, 0)

    def render(self, agent: "Subagent | None" = None) -> str:
        """The lines of the page that are in the window, as the page is now."""
        notes = self.read() if self.url else []
        if not self.url:
            return 'No page is open: self.tools["browser"].open("http://localhost:8000/")'
        self.top = max(min(self.top, len(self.lines) - 1), 0)
        shown = self.lines[self.top : self.top + WINDOW]
        where = f"lines {self.top + 1} to {self.top + len(shown)} of {len(self.lines)}"
        rest = "; down() and up() show others" if len(self.lines) > WINDOW else ""
        status = f"{self.status}, " if self.status else ""
        hint = [self.only_reads] if self.only_reads else []
        return "\n".join([f"{self.url} ({status}{where}{rest})", *notes, *shown, *hint])

    def close(self, agent: "Subagent | None" = None) -> None:
        """Close this tool and its view."""
        if self.chromium is not None:
            self.chromium.close()
            self.chromium = None
        super().close()

    # ---- Chromium

    def real(self) -> Chromium:
        self.check_open()
        if self.chromium is None:
            raise RuntimeError("this browser only reads: WeaveBrowser(self, url, javascript=True) fills in forms")
        return self.chromium

    def act(self, action: str, number: int | None, *arguments: Any) -> str:
        chromium = self.real()
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"there is no [{number!r}] on this page: a number is one of those in brackets")
        before = self.url
        chromium.act(action, number, *arguments)
        return self.take(from_top=chromium.url != before)

    def take(self, from_top: bool = False) -> str:
        """Take over what Chromium shows, and give its text."""
        chromium = self.real()
        self.url, self.status, self.lines = chromium.url, chromium.status, chromium.lines
        self.top = 0 if from_top else self.top
        return "\n".join(self.lines)

    def read(self) -> list[str]:
        """Read the page again: its JavaScript may have changed it. Gives what else there is to say."""
        if self.chromium is None:
            return []
        failed = []
        try:
            self.chromium.receive(0)
            self.chromium.read()
        except (RuntimeError, TimeoutError) as error:
            failed = [str(error)]
        self.take()
        return [f"({note})" for note in dict.fromkeys([*self.chromium.notes[-SHOWN_NOTES:], *failed])]

    # ---- without Chromium

    def load(self, url: str) -> None:
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
        self.only_reads = ONLY_READS if kind in HTML and FORM.search(data) else ""


def address(url: str) -> str:
    """Return the address with its scheme. Raises ValueError if it is not of the web."""
    if "://" not in url:
        url = f"http://{url}"
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ValueError(f"{url} can't be opened: only addresses that begin with http:// or https://")
    return url


def read(data: bytes, kind: str, charset: str, url: str) -> tuple[list[str], list[Link]]:
    """Return the lines and links of an answer's body."""
    cut = ["(the page is larger than 2 MiB: this is its beginning)"] if len(data) > MAX_PAGE_BYTES else []
    try:
        text = data[:MAX_PAGE_BYTES].decode(charset, "replace")
    except LookupError:
        text = data[:MAX_PAGE_BYTES].decode("utf-8", "replace")
    if kind in HTML:
        lines, links = to_text(text, url)
        return cut + lines, links
    if kind.startswith("text/") or kind in ("application/json", "application/xml", "application/javascript"):
        return cut + text.splitlines(), []
    return [f"(this is no text: {kind}, {len(data):,} bytes)"], []
