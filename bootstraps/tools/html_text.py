"""Converts HTML to lines of text with numbered links."""

import re
import urllib.parse
from dataclasses import dataclass
from html.parser import HTMLParser

Attributes = list[tuple[str, str | None]]

BLOCKS = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote body dd details div dl dt fieldset figure footer form h1 h2 h3 h4 h5 h6"
        " header hr li main nav ol p pre section summary table tbody thead title tr ul",
    )
)
APART = frozenset(["p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "table", "ul", "ol", "blockquote", "title"])
"""Blocks with an empty line around them."""
UNSEEN = frozenset(["script", "style", "template", "noscript", "svg"])


@dataclass(frozen=True)
class Link:
    text: str
    url: str


class Reader(HTMLParser):
    """Collects the lines and links of a page."""

    def __init__(self, base: str):
        super().__init__(convert_charrefs=True)
        self.base = base
        self.lines: list[str] = []
        self.line = ""
        self.links: list[Link] = []
        self.anchor: str | None = None  # address of the open link
        self.anchor_text = ""
        self.unseen = self.pre = 0
        self.lists: list[int | None] = []  # per open list, the number of its last item; None without numbers

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in UNSEEN:
            self.unseen += 1
        elif tag in BLOCKS:
            self.begin_block(tag, values)
        elif tag == "br":
            self.end_line()
        elif tag in ("td", "th") and self.line.strip():
            self.line = self.line.rstrip() + " | "
        elif tag == "base" and values.get("href"):
            self.base = urllib.parse.urljoin(self.base, values["href"])
        elif tag == "a" and values.get("href"):
            self.end_anchor()
            self.anchor, self.anchor_text = urllib.parse.urljoin(self.base, values["href"]), ""
        elif tag == "img" and values.get("alt"):
            self.handle_data(f"({values['alt']})")
        elif tag in ("input", "textarea", "select", "button") and values.get("type") != "hidden":
            self.handle_data(f"<{' '.join(filter(None, [tag, values.get('name'), values.get('value')]))}>")

    def begin_block(self, tag: str, values: dict[str, str]) -> None:
        self.end_line(apart=tag in APART and not self.lists)
        if tag in ("ul", "ol"):
            self.lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            number = self.lists[-1] if self.lists else None
            if number is not None:
                self.lists[-1] = number + 1
            self.line = "  " * max(len(self.lists) - 1, 0) + ("- " if number is None else f"{number + 1}. ")
        elif tag[0] == "h" and tag[1:].isdigit():
            self.line = "#" * int(tag[1:]) + " "
        elif tag == "hr":
            self.line = "-" * 20
            self.end_line()
        self.pre += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in UNSEEN:
            self.unseen = max(self.unseen - 1, 0)
        elif tag == "a":
            self.end_anchor()
        elif tag in BLOCKS:
            if tag in ("ul", "ol") and self.lists:
                self.lists.pop()
            self.end_line(apart=tag in APART and not self.lists)
            if tag == "pre":
                self.pre = max(self.pre - 1, 0)

    def handle_data(self, data: str) -> None:
        if self.unseen:
            return
        if self.pre:
            *whole, rest = data.split("\n")
            for part in whole:
                self.lines.append(self.line + part)
                self.line = ""
            self.line += rest
        else:
            text = re.sub(r"\s+", " ", data)
            self.line += text.lstrip() if not self.line or self.line.endswith(" ") else text
        if self.anchor is not None:
            self.anchor_text += data

    def end_anchor(self) -> None:
        if self.anchor is None:
            return
        self.links.append(Link(" ".join(self.anchor_text.split()), self.anchor))
        self.anchor = None
        self.mark(len(self.links))

    def mark(self, number: int | str) -> None:
        """Put a number behind what was read last."""
        blank = " " if self.line.endswith(" ") else ""
        self.line = f"{self.line.rstrip()} [{number}]{blank}"

    def finish(self) -> list[str]:
        """End the page, and return its lines."""
        self.close()
        self.end_anchor()
        self.end_line()
        while self.lines and not self.lines[-1]:
            self.lines.pop()
        return self.lines

    def end_line(self, apart: bool = False) -> None:
        if self.line.strip():
            self.lines.append(self.line.rstrip())
        self.line = ""
        if apart and self.lines and self.lines[-1]:
            self.lines.append("")


def to_text(html: str, base: str) -> tuple[list[str], list[Link]]:
    """Return the lines of a page and its links in order. Relative addresses are resolved against `base`."""
    reader = Reader(base)
    reader.feed(html)
    return reader.finish(), reader.links
