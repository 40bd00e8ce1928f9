"""Sites to be built with the framework Postern, made from a seed, and checks of them, for the bootstrap web_framework.

A check is a list of requests that are sent to a fresh copy of the site, and what the last answer must be. `grade` sends
them to the site in a process that can only compute.
"""

import html
import inspect
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bootstraps import program_checks

PARTS = ("list", "item", "form", "filter")
"""The parts of a site that are checked."""


@dataclass(frozen=True)
class Theme:
    """What a site is about: the plural is its address; a thing has a title and a number with a unit."""

    thing: str
    things: str
    unit: str
    numbers: tuple[int, int]
    titles: tuple[str, ...]


THEMES = (
    Theme("boat", "boats", "seats", (2, 12), ("Nora", "Salt & Smoke", "Grey Heron", "Wren", "Old <Anchor>", "Dipper")),
    Theme("plot", "plots", "metres", (10, 90), ("Bean Row", "Pear & Quince", "Corner", "Shade", "Herb <Bed>", "Acre")),
    Theme("game", "games", "players", (2, 8), ("Ferry", "Gold & Glass", "Towers", "Hill", "This <or> That", "Otter")),
    Theme("room", "rooms", "beds", (1, 9), ("Attic", "Sea & Sky", "Garden Room", "Blue", "No <Sleep>", "The Loft")),
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A site that is to be built."""

    theme: Theme
    first: tuple[tuple[str, int], ...]
    """Titles and numbers of the things that are there at first, numbered from 1."""
    least: int
    most: int
    longest: int
    """Least and most of a new thing's number, and characters of its title."""

    def requirements(self) -> dict[str, str]:
        """What each part has to do."""
        one, many, unit = self.theme.thing, self.theme.things, self.theme.unit
        there = "; ".join(f"{title} ({number} {unit})" for title, number in self.first)
        return {
            "list": f"GET /{many} lists all {many} in their order, each as <li>TITLE: NUMBER {unit}</li>, escaped "
            f"where it must be. At first there are, numbered from 1: {there}.",
            "item": f"GET /{many}/NUMBER shows the {one} of that number, with <h1>TITLE</h1> and the text `NUMBER "
            f"{unit}`. There is no page for other numbers: status 404.",
            "form": f"GET /{many}/new shows a form with inputs named title and {unit}. POST /{many} with these fields "
            f"adds a {one}, with the next number, and goes (303) to its page. The title has at most "
            f"{self.longest} characters, {unit} is a number from {self.least} to {self.most}. If a field is "
            "wrong, nothing is added, and the answer has status 422, the field's name and the form's sentence about "
            "it, as `title is missing`, and the title that was typed, escaped.",
            "filter": f"GET /{many}?least=NUMBER lists only those with so many {unit} or more; a least that is no "
            "number gives status 400.",
        }

    def cases(self, part: str, random: Random) -> list[dict[str, Any]]:
        """Checks of a part, as `case` makes them."""
        path, unit, first = f"/{self.theme.things}", self.theme.unit, list(self.first)
        title = random.choice(self.theme.titles)[: self.longest]
        good = (title, random.randint(self.least, self.most))
        if part == "list":
            lines = [self.line(*one) for one in first]
            longer = [*lines, self.line(*good)]
            return [case(get(path), order=lines), case(post(path, title, unit, good[1]), get(path), order=longer)]
        if part == "item":
            number = random.randrange(len(first))
            texts = [f"<h1>{html.escape(first[number][0])}</h1>", f"{first[number][1]} {unit}"]
            others = [case(get(f"{path}/{bad}"), status=404) for bad in (0, len(first) + 1, "first")]
            return [case(get(f"{path}/{number + 1}"), has=texts), *others]
        if part == "form":
            new, heading = f"{path}/{len(first) + 1}", f"<h1>{html.escape(title)}</h1>"
            added = case(post(path, title, unit, good[1]), status=303, location=new)
            shown = case(post(path, title, unit, good[1]), get(new), has=[heading])
            bad = [
                ("", good[1], "title is missing"),
                ("&" * (self.longest + 1), good[1], f"title is longer than {self.longest} characters"),
                (title, self.most + random.randint(1, 9), f"{unit} is more than {self.most}"),
                (title, self.least - 1, f"{unit} is less than {self.least}"),
                (title, "many", f"{unit} is no number"),
            ]
            refused = [case(post(path, name, unit, number), status=422, has=[why, html.escape(name)])
                       for name, number, why in bad]  # fmt: skip
            kept = case(post(path, "", unit, good[1]), get(new), status=404)
            page = case(get(f"{path}/new"), has=['name="title"', f'name="{unit}"'])
            return [page, added, shown, *refused, kept]
        least = sorted(number for _, number in first)[1]
        inside, outside = (
            [self.line(*one) for one in first if (one[1] >= least) is within] for within in (True, False)
        )
        return [
            case(get(f"{path}?least={least}"), order=inside, lacks=outside),
            case(get(f"{path}?least=0"), order=[self.line(*one) for one in first]),
            case(get(f"{path}?least=few"), status=400),
        ]

    def line(self, title: str, number: int) -> str:
        return f"<li>{html.escape(title)}: {number} {self.theme.unit}</li>"


def make(seed: int) -> Task:
    """A task. Equal seeds give equal tasks."""
    random = Random(seed)
    theme = random.choice(THEMES)
    numbers = random.sample(range(theme.numbers[0], theme.numbers[1] + 1), 3)
    most = theme.numbers[1] + random.randint(0, 5)
    return Task(
        theme, tuple(zip(random.sample(theme.titles[:5], 3), numbers, strict=True)), theme.numbers[0], most,
        random.randint(15, 30),
    )  # fmt: skip


# -------------------------------------------------------------------------------------------- checks


def get(address: str) -> list[str]:
    return ["GET", address, ""]


def post(path: str, title: str, unit: str, number: object) -> list[str]:
    return ["POST", path, urllib.parse.urlencode({"title": title, unit: number})]


def case(
    *requests: list[str],
    status: int = 200,
    has: Sequence[str] = (),
    order: Sequence[str] = (),
    lacks: Sequence[str] = (),
    location: str = "",
) -> dict[str, Any]:
    """Requests, and what the last one's answer must be: texts that it has, has in this order, or lacks."""
    texts = {"has": list(has), "order": list(order), "lacks": list(lacks)}
    return {"given": requests, "status": status, "location": location, **texts}


def holds(case: Any, answer: Any) -> bool:
    """Whether the last answer, [status, location, text], is what a check wants."""
    status, location, text = answer
    if status != case["status"] or (case["location"] and location != case["location"]):
        return False
    place = 0
    for part in case["order"]:
        place = text.find(part, place) + len(part)
        if place < len(part):
            return False
    return all(part in text for part in case["has"]) and not any(part in text for part in case["lacks"])


HARNESS = """
from bootstraps.postern import Site, request
def respond(given):
    names = {"__name__": "site"}
    exec(compile(SOURCE, "site.py", "exec"), names)
    for method, address, posted in given:
        try:
            answer = names["site"].answer(request(method, address, posted))
            found = [int(answer.status), str(answer.headers.get("Location", "")), str(answer.text)]
        except Exception as error:
            found = [500, "", f"{type(error).__name__}: {error}"]
    return found
"""


def grade(task: Task, part: str, source: str, random: Random) -> list[float]:
    """The scores of a site's text in the checks of a part, 0 or 1 each."""
    here = Path(__file__).parent
    modules = {"bootstraps": "", "bootstraps.postern": (here / "postern.py").read_text()}
    cases = task.cases(part, random)
    return program_checks.scores(
        program_checks.program(HARNESS, source, modules), "respond", cases, inspect.getsource(holds)
    )
