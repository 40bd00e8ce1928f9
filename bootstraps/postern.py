"""Postern, a small web framework that exists only here, and its manual. For the bootstrap web_framework."""

import html
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MANUAL = {
    "routes": """\
A site is a set of routes. A route is a method, a path and a function that answers:

    from bootstraps.postern import Site
    site = Site()

    @site.on("GET", "/stations/<int:number>")
    def show(ask, number):
        return f"This is station {number}."

`ask` is the request. `<name>` in a path stands for one part of it and is passed under this name, `<int:name>` for
digits alone, passed as a number. Routes are tried in the order in which they were made: the first that fits answers,
so
"/stations/all" must be made before "/stations/<name>". If none has the path, the answer has status 404; if one has the
path but not the method, 405.""",
    "requests": """\
`ask.method`, `ask.path`; `ask.query`, a dict of what stands behind the `?` of the address; `ask.form`, a dict of the
fields that were posted. All values are strings, and the first one counts where a field comes twice.""",
    "answers": """\
A function returns a text, which is HTML with status 200, or one of these:

    from bootstraps.postern import Answer, go, missing
    Answer("<p>Try again.</p>", 422)    any status
    go("/stations/3")                   sends the reader there after a post: status 303, header Location
    missing("There is no such station") status 404

A function that raises gives status 500.""",
    "templates": """\
Templates are texts that the site knows by name, and `site.fill` fills one with values:

    site = Site(templates={"list": "<ul>{each station in stations}<li>{station.name}</li>{end}</ul>"})
    site.fill("list", stations=[{"name": "North"}, {"name": "South"}])

`{name}` puts a value in, with <, >, & and quotes escaped; `{name.part}` takes a part of a dict. `{raw name}` does not
escape. `{each x in xs} ... {end}` repeats; `{when x} ... {otherwise} ... {end}` shows the first part if x is true and
not empty, else the second, which may be left out. Both may be nested. A name that has no value raises a KeyError. Other
braces can't stand in a template.""",
    "forms": """\
A form reads the fields of a post and says what is wrong with them:

    from bootstraps.postern import Form, Number, Text
    form = Form(name=Text(most=20), platforms=Number(least=1, most=12))
    values, errors = form.read(ask.form)

`values` has the fields as they are to be used: texts without blanks at their ends, numbers as numbers; it lacks fields
that are wrong. `errors` has a sentence for each field that is wrong, and is empty if none is: "is missing", "is longer
than 20 characters", "is no number", "is less than 1", "is more than 12".""",
}
"""The manual's chapters by name."""

TAG = re.compile(r"\{([^{}]*)\}")
PART = re.compile(r"<(int:)?(\w+)>")


@dataclass(frozen=True)
class Ask:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """An answer: HTML, status, headers."""

    text: str
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def go(address: str) -> Answer:
    return Answer("", 303, {"Location": address})


def missing(why: str = "There is no such page") -> Answer:
    return Answer(f"<p>{html.escape(why)}</p>", 404)


class Site:
    """Routes and templates."""

    def __init__(self, templates: Mapping[str, str] | None = None):
        self.templates = dict(templates or {})
        self.routes: list[tuple[str, re.Pattern[str], frozenset[str], Callable[..., Any]]] = []

    def on(self, method: str, path: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Let the function that follows answer requests with this method and path."""
        numbers = frozenset(name for number, name in PART.findall(path) if number)
        ends = [0, *(end for part in PART.finditer(path) for end in part.span()), len(path)]
        pieces = [re.escape(path[start:end]) for start, end in zip(ends[::2], ends[1::2], strict=True)]
        groups = [f"(?P<{name}>{'[0-9]{1,9}' if number else '[^/]+'})" for number, name in PART.findall(path)]
        pattern = re.compile("".join(part for pair in zip(pieces, [*groups, ""], strict=True) for part in pair))

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            self.routes.append((method, pattern, numbers, function))
            return function

        return add

    def answer(self, ask: Ask) -> Answer:
        """Answer a request. What the function raises passes through."""
        fitting = [(route, match) for route in self.routes if (match := route[1].fullmatch(ask.path))]
        for (method, _, numbers, function), match in fitting:
            if method == ask.method:
                found = {name: int(text) if name in numbers else text for name, text in match.groupdict().items()}
                answer = function(ask, **found)
                if not isinstance(answer, str | Answer):
                    raise TypeError(f"{function.__name__} returned {answer!r:.80}: return a text or an Answer")
                return Answer(answer) if isinstance(answer, str) else answer
        if fitting:
            return Answer("<p>Not with this method</p>", 405, {"Allow": ", ".join(route[0] for route, _ in fitting)})
        return missing()

    def fill(self, template: str, **values: Any) -> str:
        """A template with values in it."""
        tokens = TAG.split(self.templates[template])
        return filled([(tokens[at], at % 2 == 1) for at in range(len(tokens))], values)


def filled(tokens: list[tuple[str, bool]], values: Mapping[str, Any]) -> str:
    """Fill the tokens of a template: (text, whether it is a tag)."""
    text, at = "", 0
    while at < len(tokens):
        token, is_tag = tokens[at]
        at += 1
        word, _, rest = token.strip().partition(" ")
        if not is_tag:
            text += token
        elif word in ("each", "when"):
            otherwise, end = block(tokens, at)
            body, other = tokens[at:otherwise], tokens[otherwise + 1 : end]
            if word == "when":
                text += filled(body if value(rest, values) else other, values)
            else:
                name, _, many = rest.partition(" in ")
                text += "".join(filled(body, {**values, name.strip(): one}) for one in value(many, values))
            at = end + 1
        elif word == "raw":
            text += str(value(rest, values))
        else:
            text += html.escape(str(value(token, values)))
    return text


def block(tokens: list[tuple[str, bool]], start: int) -> tuple[int, int]:
    """Places of the `otherwise` and the `end` of the block whose content begins at `start`."""
    depth, otherwise = 0, None
    for at in range(start, len(tokens)):
        word = tokens[at][0].strip().partition(" ")[0] if tokens[at][1] else ""
        if word == "otherwise" and depth == 0:
            otherwise = at
        if word == "end" and depth == 0:
            return (at if otherwise is None else otherwise), at
        depth += (word in ("each", "when")) - (word == "end")
    raise ValueError("a block of a template has no {end}")


def value(name: str, values: Mapping[str, Any]) -> Any:
    """The value of a name, or of a part of it."""
    first, *parts = name.strip().split(".")
    found = values[first]
    for part in parts:
        found = found[part]
    return found


@dataclass(frozen=True)
class Text:
    """A field with a text."""

    most: int = 200

    def read(self, text: str) -> tuple[Any, str]:
        text = text.strip()
        if not text:
            return None, "is missing"
        return text, f"is longer than {self.most} characters" if len(text) > self.most else ""


@dataclass(frozen=True)
class Number:
    """A field with a whole number."""

    least: int = 0
    most: int = 10**6

    def read(self, text: str) -> tuple[Any, str]:
        text = text.strip()
        if not text:
            return None, "is missing"
        if not re.fullmatch(r"-?[0-9]{1,9}", text):
            return None, "is no number"
        number = int(text)
        wrong = f"is less than {self.least}" if number < self.least else ""
        return number, f"is more than {self.most}" if number > self.most else wrong


class Form:
    """Fields by name."""

    def __init__(self, **fields: Text | Number):
        self.fields = fields

    def read(self, posted: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
        """The values that are right, and what is wrong with the others."""
        found = {name: one.read(posted.get(name, "")) for name, one in self.fields.items()}
        values = {name: value for name, (value, error) in found.items() if not error}
        return values, {name: error for name, (_, error) in found.items() if error}


def request(method: str, address: str, posted: str = "") -> Ask:
    """A request from an address and the body of a post."""
    path, _, query = address.partition("?")
    query_values, form = (
        {name: found[0] for name, found in urllib.parse.parse_qs(text, keep_blank_values=True).items()}
        for text in (query, posted)
    )
    return Ask(method, urllib.parse.unquote(path), query_values, form)
