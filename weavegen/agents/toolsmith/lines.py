"""What the toolsmith's stages answer, read line by line: `key: value`, with words around it left out."""

import re
from collections.abc import Collection, Iterator

import msgspec

from weavegen.agents.toolsmith.library import check_name

LINE = re.compile(r"^[\s>*`-]*([a-z]+)[\s*`]*:[\s*`]*(\S.*?)[\s*`]*$", re.IGNORECASE)
"""With the marks that models like to put around: bullets, stars, backquotes."""
COLLECTIONS = ("data", "outcome", "preference")
MOST_QUERIES = 3
"""For a collection."""
MOST_APPROACHES = 3
MOST_NEEDS = 4
"""Tools of an approach, and tools decided upon."""
LONGEST = 1_000
"""Characters of a line that are read."""


class Need(msgspec.Struct, frozen=True):
    """A tool that would be needed."""

    name: str
    description: str


class Approach(msgspec.Struct, frozen=True):
    """How the work could be done."""

    text: str
    needs: tuple[Need, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """What is done about tools; nothing of it: Python alone."""

    use: tuple[str, ...] = ()
    create: tuple[Need, ...] = ()
    replan: str = ""
    """Why; empty: no other plan is wanted."""


def read_queries(text: str) -> dict[str, list[str]]:
    """Queries by collection. Raises ValueError where there are none."""
    found: dict[str, list[str]] = {name: [] for name in COLLECTIONS}
    for key, value in pairs(text, COLLECTIONS):
        if len(found[key]) < MOST_QUERIES and value not in found[key]:
            found[key].append(value)
    if not any(found.values()):
        raise ValueError("there is no line such as `data: KEYWORDS`")
    return found


def read_plan(text: str) -> list[Approach]:
    """Approaches in their order. Raises ValueError where there are none, or a tool line is not as it should be."""
    found: list[Approach] = []
    for key, value in pairs(text, ("approach", "tool")):
        if key == "approach":
            found.append(Approach(value))
        elif not found:
            raise ValueError("a tool line stands before the first approach line")
        elif len(found[-1].needs) < MOST_NEEDS:
            found[-1] = Approach(found[-1].text, (*found[-1].needs, read_need(value)))
    if not found:
        raise ValueError("there is no line such as `approach: WHAT IS DONE`")
    return found[:MOST_APPROACHES]


def read_choice(text: str, listed: Collection[str], taken: Collection[str], *, replan: bool) -> Choice:
    """What was decided. `listed`: names in the library; `taken`: names that no new tool may have.

    Raises ValueError where nothing was decided, or what is impossible.
    """
    use: list[str] = []
    create: list[Need] = []
    why: dict[str, str] = {}
    for key, value in pairs(text, ("use", "create", "replan", "none")):
        if key == "use":
            name = re.split(r"[(:\s]", value, maxsplit=1)[0]
            if name not in listed:
                raise ValueError(f"the library has no {name}: {', '.join(listed) or 'nothing'} was found")
            use.append(name)
        elif key == "create":
            need = read_need(value)
            if need.name in taken:
                raise ValueError(f"there is a tool {need.name} already: give another name")
            create.append(need)
        else:
            why[key] = value
    if not use and not create and not why:
        raise ValueError("there is no line such as `use: NAME` or `create: NAME: WHAT IT DOES`")
    if "replan" in why and not use and not create:
        if not replan:
            raise ValueError("there is no further plan: use, create or none")
        return Choice(replan=why["replan"])
    needs = {need.name: need for need in create if need.name not in use}
    return Choice(tuple(dict.fromkeys(use))[:MOST_NEEDS], tuple(needs.values())[:MOST_NEEDS])


def read_requests(text: str) -> list[str]:
    """Requests that others might make. Raises ValueError where there are none."""
    found = [value for _, value in pairs(text, ("request",))]
    if not found:
        raise ValueError("there is no line such as `request: WHAT IS ASKED FOR`")
    return found


def read_need(text: str) -> Need:
    """`NAME: DESCRIPTION`; of a signature the name. Raises ValueError."""
    head, _, description = text.partition(":") if "(" not in text.partition(":")[0] else signature_split(text)
    name = head.partition("(")[0].strip(" `*")
    if not description.strip():
        raise ValueError(
            f"a tool line has the form `tool: NAME: WHAT IT TAKES AND RETURNS`, this has not: {text[:200]}"
        )
    check_name(name)
    return Need(name, description.strip())


def signature_split(text: str) -> tuple[str, str, str]:
    """`name(a: int): what`, split behind the bracket; types have colons, too."""
    head, bracket, rest = text.rpartition(")")
    if not bracket:
        return text.partition(":")
    before, colon, description = rest.partition(":")
    return f"{head}){before}", colon, description


def pairs(text: str, keys: Collection[str]) -> Iterator[tuple[str, str]]:
    """The lines `key: value` with one of these keys, in order."""
    for line in text.splitlines():
        match = LINE.match(line[:LONGEST])
        if match is not None and match[1].lower() in keys:
            yield match[1].lower(), match[2]
