"""Parsers for the model's answers in the toolsmith's stages: lines `key: value`. Other text is ignored."""

import re
from collections.abc import Collection, Iterator

import msgspec

from weavegen.agents.toolsmith.library import check_name

LINE = re.compile(r"^(?:[\s>*`#-]|\d+[.)])*([a-z]+)[\s*`\d]*:[\s*`]*(\S.*?)[\s*`]*$", re.IGNORECASE)
"""A line `key: value`. Models often number it, and put bullets, asterisks and backquotes around key and value."""
COLLECTIONS = ("data", "outcome", "preference")
MAX_QUERIES = 3
"""Queries for one collection."""
MAX_APPROACHES = 3
MAX_NEEDS = 4
"""Limit on each: the tools of an approach, the tools to use, the tools to make."""
MAX_LINE_CHARS = 1_000


class Need(msgspec.Struct, frozen=True):
    """A tool that an approach needs."""

    name: str
    description: str


class Approach(msgspec.Struct, frozen=True):
    """A way to carry out the request."""

    text: str
    needs: tuple[Need, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """The decision about tools. Without a tool, the request is carried out with Python alone."""

    use: tuple[str, ...] = ()
    create: tuple[Need, ...] = ()
    replan: str = ""
    """Why another plan is needed. Empty: the plan stays."""


def read_queries(text: str) -> dict[str, list[str]]:
    """Queries by collection. Raises ValueError if the text has no query."""
    queries: dict[str, list[str]] = {name: [] for name in COLLECTIONS}
    for key, value in pairs(text, COLLECTIONS):
        if len(queries[key]) < MAX_QUERIES and value not in queries[key]:
            queries[key].append(value)
    if not any(queries.values()):
        raise ValueError("there is no line such as `data: KEYWORDS`")
    return queries


def read_plan(text: str) -> list[Approach]:
    """Approaches in order. Raises ValueError if the text has no approach or a malformed tool line."""
    plan: list[Approach] = []
    for key, value in pairs(text, ("approach", "tool")):
        if key == "approach":
            plan.append(Approach(value))
        elif not plan:
            raise ValueError("a tool line stands before the first approach line")
        elif len(plan[-1].needs) < MAX_NEEDS:
            plan[-1] = Approach(plan[-1].text, (*plan[-1].needs, read_need(value)))
    if not plan:
        raise ValueError("there is no line such as `approach: WHAT IS DONE`")
    return plan[:MAX_APPROACHES]


def read_choice(text: str, library: Collection[str], reserved: Collection[str], *, replan: bool) -> Choice:
    """The decision. `library`: names of the tools that may be used; `reserved`: names that no new tool may have.

    `replan`: whether another plan is allowed. Raises ValueError if the text has no valid decision.
    """
    use: list[str] = []
    create: list[Need] = []
    reasons: dict[str, str] = {}
    for key, value in pairs(text, ("use", "create", "replan", "none")):
        if key == "use":
            name = re.split(r"[(:\s`*]", value, maxsplit=1)[0]
            if name not in library:
                raise ValueError(f"the library has no {name}: {', '.join(library) or 'nothing'} was found")
            use.append(name)
        elif key == "create":
            if (need := read_need(value)).name in reserved:
                raise ValueError(f"there is a tool {need.name} already: give another name")
            create.append(need)
        else:
            reasons[key] = value
    if not use and not create and not reasons:
        raise ValueError("there is no line such as `use: NAME` or `create: NAME: WHAT IT DOES`")
    if "replan" in reasons and not use and not create:
        if not replan:
            raise ValueError("there is no further plan: use, create or none")
        return Choice(replan=reasons["replan"])
    needs = {need.name: need for need in create if need.name not in use}
    return Choice(tuple(dict.fromkeys(use))[:MAX_NEEDS], tuple(needs.values())[:MAX_NEEDS])


def read_requests(text: str) -> list[str]:
    """Requests that other users might make. Raises ValueError if the text has none."""
    if not (requests := [value for _, value in pairs(text, ("request",))]):
        raise ValueError("there is no line such as `request: WHAT IS ASKED FOR`")
    return requests


def read_need(text: str) -> Need:
    """A tool from `NAME: DESCRIPTION` or `NAME(a: int): DESCRIPTION`. Raises ValueError."""
    head, _, description = text.partition(":")
    if "(" in head and ")" in text:  # the description begins after the bracket; colons inside it belong to types
        description = text.rpartition(")")[2].partition(":")[2]
    name = head.partition("(")[0].strip(" `*")
    if not description.strip():
        form = "`tool: NAME: WHAT IT TAKES AND RETURNS`"
        raise ValueError(f"a tool line has the form {form}, this has not: {text[:200]}")
    check_name(name)
    return Need(name, description.strip())


def pairs(text: str, keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """The lines `key: value` with one of these keys, in order."""
    for line in text.splitlines():
        if (match := LINE.match(line[:MAX_LINE_CHARS])) and match[1].lower() in keys:
            yield match[1].lower(), match[2]
