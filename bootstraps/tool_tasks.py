"""Tools that are to be written, with cases drawn from a seed, for the bootstrap tool_writing.

A tool is a class by the conventions of bootstraps/tools: its constructor takes the subagent and opens it under a key
and with a view, `render` gives the view's text, `close` ends it. A case is a list of calls, and what each must give.
"""

import csv
import datetime
import inspect
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from bootstraps import program_checks

RAISED = {"raised": "ValueError"}
"""What a call gives that is refused."""
GROUPS = ("window", "methods", "refusals")
"""What cases are about: opening, view and closing; results of methods; wrong arguments."""

Call = list[Any]
"""A method's name and its arguments; `close` and `render` are such methods, too."""


@dataclass(frozen=True)
class Spec:
    """What is to be written."""

    name: str
    """The class."""
    key: str
    methods: str
    """What its methods and its view must do."""
    draw: Callable[[Random], tuple[list[Any], dict[str, list[list[Call]]]]]
    """Draws the constructor's arguments after the subagent, and by group, lists of calls."""
    reference: type


@dataclass(frozen=True)
class Case:
    """Arguments of the constructor, calls, and what each gives, as JSON."""

    arguments: list[Any]
    calls: list[Call]
    wanted: list[Any]


# -------------------------------------------------------------------------------------------- dates


class Dates:
    """The reference of the calculator of dates."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def note(self, asked: str, result: Any) -> Any:
        self.lines.append(f"{asked} = {result}")
        return result

    def add(self, date: str, days: int) -> str:
        moved = datetime.date.fromisoformat(date) + datetime.timedelta(days=days)
        return str(self.note(f"{date} + {days}", moved.isoformat()))

    def between(self, first: str, second: str) -> int:
        days = (datetime.date.fromisoformat(second) - datetime.date.fromisoformat(first)).days
        return int(self.note(f"{first} to {second}", days))

    def weekday(self, date: str) -> str:
        return str(self.note(date, datetime.date.fromisoformat(date).strftime("%A")))

    def render(self) -> str:
        return "\n".join([f"Calculations: {len(self.lines)}", *self.lines[-3:]])


def draw_dates(random: Random) -> tuple[list[Any], dict[str, list[list[Call]]]]:
    def date() -> str:
        return (datetime.date(1990, 1, 1) + datetime.timedelta(days=random.randrange(20_000))).isoformat()

    calls: list[Call] = [
        ["add", date(), random.randint(-900, 900)], ["between", date(), date()], ["weekday", date()],
        ["add", f"{random.randrange(2000, 2090)}-02-28", 1], ["weekday", date()],
    ]  # fmt: skip
    bad: list[list[Call]] = [
        [["add", "2031-02-30", 1], ["render"]],
        [["weekday", "tomorrow"]],
        [["between", date(), "31.12.2031"]],
    ]
    return [], {
        "window": [[["render"]], [*calls[:4], ["render"]]],
        "methods": [[call] for call in calls],
        "refusals": bad,
    }


DATES = Spec(
    "DateCalculator", "dates",
    """\
add(date, days)         the date so many days later; dates are texts such as "2031-04-30", also in the results
between(first, second)  the number of days from the first to the second date
weekday(date)           "Monday" to "Sunday"
A text that is no date raises a ValueError.
The view has the line `Calculations: N`, then the last three, the newest last, as `2031-04-30 + 2 = 2031-05-02`,
`2031-04-30 to 2031-05-02 = 2` and `2031-04-30 = Wednesday`. What was refused does not count.""",
    draw_dates, Dates,
)  # fmt: skip

# -------------------------------------------------------------------------------------------- tables


class Table:
    """The reference of the viewer of tables."""

    def __init__(self, text: str) -> None:
        self.names, *self.all = list(csv.reader(io.StringIO(text)))
        self.kept = list(self.all)

    def column(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"there is no column {name!r}: there are {', '.join(self.names)}")
        return self.names.index(name)

    def keep(self, name: str, value: str) -> int:
        at = self.column(name)
        self.kept = [row for row in self.kept if row[at] == value]
        return len(self.kept)

    def sort(self, name: str) -> None:
        at = self.column(name)
        numbers = all(row[at].isdecimal() for row in self.all)
        self.kept.sort(key=lambda row: (int(row[at]) if numbers else 0, row[at]))

    def total(self, name: str) -> int:
        at = self.column(name)
        return sum(int(row[at]) for row in self.kept)

    def reset(self) -> None:
        self.kept = list(self.all)

    def render(self) -> str:
        shown = [" | ".join(row) for row in self.kept[:5]]
        return "\n".join([" | ".join(self.names), *shown, f"Rows: {len(self.kept)} of {len(self.all)}"])


def draw_table(random: Random) -> tuple[list[Any], dict[str, list[list[Call]]]]:
    goods, towns = (
        random.sample(("salt", "rope", "tar", "wool", "glass", "tin"), 3),
        ("Aldermoor", "Dunsell", "Eskerby"),
    )
    rows = [
        f"{random.choice(goods)},{random.choice(towns)},{random.randint(1, 400)}" for _ in range(random.randint(9, 14))
    ]
    good, town = random.choice(rows).split(",")[:2]
    window: list[list[Call]] = [
        [["render"]], [["keep", "goods", good], ["render"]], [["sort", "weight"], ["render"]],
        [["sort", "town"], ["keep", "goods", good], ["render"], ["reset"], ["render"]],
    ]  # fmt: skip
    total: Call = ["total", "weight"]
    methods: list[list[Call]] = [
        [["keep", "goods", good], total], [["keep", "town", town], ["keep", "goods", good]], [total],
        [["keep", "town", "Nowhere"], total], [["sort", "goods"], total],
    ]  # fmt: skip
    refusals: list[list[Call]] = [[["keep", "price", "3"]], [["sort", "Goods"]], [["total", "goods"]]]
    text = "\n".join(["goods,town,weight", *rows]) + "\n"
    return [text], {"window": window, "methods": methods, "refusals": refusals}


TABLE = Spec(
    "TableViewer", "table",
    """\
TableViewer(agent, text)  opens a table: `text` is CSV with a line of names first
keep(column, value)       keeps only those of the rows shown that have this text in the column; gives how many
sort(column)              sorts the rows shown, by number where the whole column has numbers, else by text; stable
total(column)             the sum of a column of the rows shown
reset()                   shows all rows again, in their first order
A column that there is not, and the total of one that has no numbers, raise a ValueError.
The view has the names, then the first five of the rows shown, each with ` | ` between the fields, then the line
`Rows: 4 of 12`.""",
    draw_table, Table,
)  # fmt: skip

# -------------------------------------------------------------------------------------------- logs


class Log:
    """The reference of the searcher of logs."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.asked, self.found = "all lines", list(self.lines)

    def find(self, word: str) -> int:
        if not word:
            raise ValueError("give a word")
        self.asked, self.found = f"lines with {word}", [line for line in self.lines if word.lower() in line.lower()]
        return len(self.found)

    def between(self, first: str, last: str) -> int:
        if first > last:
            raise ValueError("the first time is after the last")
        self.asked = f"lines from {first} to {last}"
        self.found = [line for line in self.lines if first <= line[: len(first)] and line[: len(last)] <= last]
        return len(self.found)

    def count(self, level: str) -> int:
        if level not in ("INFO", "WARNING", "ERROR"):
            raise ValueError("the levels are INFO, WARNING and ERROR")
        return sum(line.split(" ")[1] == level for line in self.lines)

    def worst(self) -> str:
        """Counts by name: the most, and of equals the first in the alphabet."""
        names = [line.split(" ")[2].rstrip(":") for line in self.lines if line.split(" ")[1] == "ERROR"]
        return min(set(names), key=lambda name: (-names.count(name), name), default="")

    def render(self) -> str:
        return "\n".join([f"{self.asked}: {len(self.found)}", *self.found[-4:]])


def draw_log(random: Random) -> tuple[list[Any], dict[str, list[list[Call]]]]:
    minutes = sorted(random.sample(range(600, 1200), random.randint(12, 18)))
    names, words = ("mail", "disk", "door", "clock"), ("late", "full", "open", "lost", "ready")
    lines = [
        f"{minute // 60:02}:{minute % 60:02} {random.choice(('INFO', 'INFO', 'WARNING', 'ERROR', 'ERROR'))} "
        f"{random.choice(names)}: it is {random.choice(words)}"
        for minute in minutes
    ]
    word, first, last = random.choice(words), *sorted(line[:5] for line in random.sample(lines, 2))
    window: list[list[Call]] = [
        [["render"]], [["find", word.upper()], ["render"]], [["between", first, last], ["render"]],
    ]  # fmt: skip
    methods: list[list[Call]] = [
        [["find", word]], [["between", first, last]], [["count", "ERROR"]], [["count", "INFO"]], [["worst"]],
        [["find", "volcano"], ["count", "WARNING"]],
    ]  # fmt: skip
    refusals: list[list[Call]] = [[["find", ""]], [["between", "19:00", "08:00"]], [["count", "error"]]]
    return ["\n".join(lines) + "\n"], {"window": window, "methods": methods, "refusals": refusals}


LOG = Spec(
    "LogSearcher", "log",
    """\
LogSearcher(agent, text)  opens a log, whose lines are `10:42 ERROR mail: it is late`: time, level, name, text
find(word)                finds the lines with a word, in capitals or not, anywhere in them; gives how many
between(first, last)      finds the lines from one time to another, both included, as "10:42"; gives how many
count(level)              how many lines of the log have the level INFO, WARNING or ERROR
worst()                   the name with the most lines of the level ERROR; of equals the first in the alphabet
No word, a first time after the last, and another level raise a ValueError.
The view has a line about what was found last, then the last four lines found. The line is `all lines: 17` at first,
then `lines with late: 3` (the word as it was given) or `lines from 10:00 to 12:00: 5`.""",
    draw_log, Log,
)  # fmt: skip

SPECS = {"dates": DATES, "table": TABLE, "log": LOG}
"""The tools by the name that the parameter has."""

# -------------------------------------------------------------------------------------------- cases


def cases(spec: Spec, group: str, random: Random) -> list[Case]:
    """Cases of a group, with what the reference gives."""
    arguments, groups = spec.draw(random)
    found = [Case(arguments, calls, answers(spec.reference(*arguments), calls)) for calls in groups[group]]
    if group == "window":
        found.append(Case(arguments, [["open"], ["close"], ["open"]], [[spec.key], None, []]))
    return found


def answers(tool: Any, calls: Sequence[Call]) -> list[Any]:
    """What each call gives; RAISED where it raises a ValueError."""
    given: list[Any] = []
    for name, *arguments in calls:
        try:
            given.append(getattr(tool, name)(*arguments))
        except ValueError:
            given.append(RAISED)
    return given


HARNESS = """
class FakeAgent:
    def __init__(self):
        self.tools, self.observation_views = {}, []
    def add_observation_view(self, title, callback, tool=None):
        self.observation_views.append({"title": title, "callback": callback, "tool": tool})
    def remove_observation_view(self, title):
        self.observation_views = [view for view in self.observation_views if view["title"] != title]
    def call(self, name, arguments):
        if name == "open":
            return [view["tool"] for view in self.observation_views if view["tool"] in self.tools]
        if name == "render":
            [view] = self.observation_views
            return view["callback"](self)
        [tool] = self.tools.values()
        return getattr(tool, name)(*arguments)
def use(given):
    class_name, key, arguments, calls = given
    names = {"__name__": "my_tool"}
    exec(compile(SOURCE, "my_tool.py", "exec"), names)
    agent = FakeAgent()
    names[class_name](agent, *arguments)
    found = []
    for name, *rest in calls:
        try:
            found.append(agent.call(name, rest))
        except ValueError as error:
            found.append({"raised": type(error).__name__})
        except Exception as error:
            found.append({"raised": type(error).__name__, "why": str(error)[:200]})
    return found
"""


def holds(case: Any, answer: Any) -> bool:
    """Whether the answers of a tool are those of the reference, in type and value."""
    same = [type(one) is type(other) and one == other for one, other in zip(answer, case["wanted"], strict=True)]
    return all(same)


def grade(spec: Spec, source: str, checked: Sequence[Case]) -> list[float]:
    """The scores, 0 or 1, of a module's text in cases. Its code runs where it can only compute."""
    window = (Path(__file__).parent / "tools" / "window.py").read_text()
    program = program_checks.program(HARNESS, source, {"tools": "", "tools.window": window})
    given = [{"given": [spec.name, spec.key, case.arguments, case.calls], "wanted": case.wanted} for case in checked]
    return program_checks.scores(program, "use", given, inspect.getsource(holds))
