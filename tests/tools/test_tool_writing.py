"""Tools that an agent has written, judged by cases that it has not seen."""

from random import Random

import pytest

from bootstraps import tool_tasks
from tests.support.live_task import live_task

TOOLS = {
    "dates": """
import datetime
from tools.window import Window
def read(text):
    return datetime.date.fromisoformat(text)
class DateCalculator(Window):
    def __init__(self, agent):
        self.lines = []
        super().__init__(agent, "DateCalculator", "dates")
    def note(self, asked, result):
        self.lines.append(f"{asked} = {result}")
        return result
    def add(self, date, days):
        return self.note(f"{date} + {days}", (read(date) + datetime.timedelta(days)).isoformat())
    def between(self, first, second):
        return self.note(f"{first} to {second}", (read(second) - read(first)).days)
    def weekday(self, date):
        names = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
        return self.note(date, names[read(date).weekday()])
    def render(self, agent=None):
        return "\\n".join([f"Calculations: {len(self.lines)}", *self.lines[-3:]])
""",
    "table": """
from tools.window import Window
class TableViewer(Window):
    def __init__(self, agent, text):
        self.names, *self.rows = [line.split(",") for line in text.splitlines()]
        self.reset()
        super().__init__(agent, "TableViewer", "table")
    def reset(self):
        self.shown = list(self.rows)
    def keep(self, column, value):
        at = self.names.index(column)
        self.shown = [row for row in self.shown if row[at] == value]
        return len(self.shown)
    def sort(self, column):
        at = self.names.index(column)
        is_number = all(row[at].isdecimal() for row in self.rows)
        self.shown = sorted(self.shown, key=lambda row: int(row[at]) if is_number else row[at])
    def total(self, column):
        return sum([int(row[self.names.index(column)]) for row in self.shown])
    def render(self, agent=None):
        rows = [self.names, *self.shown[:5]]
        return "\\n".join([*map(" | ".join, rows), f"Rows: {len(self.shown)} of {len(self.rows)}"])
""",
    "log": """
from collections import Counter
from tools.window import Window
class LogSearcher(Window):
    def __init__(self, agent, text):
        self.lines = self.hits = text.splitlines()
        self.what = "all lines"
        super().__init__(agent, "LogSearcher", "log")
    def find(self, word):
        if word == "":
            raise ValueError("no word")
        self.what, self.hits = f"lines with {word}", [one for one in self.lines if word.lower() in one.lower()]
        return len(self.hits)
    def between(self, first, last):
        if last < first:
            raise ValueError("the times are the wrong way round")
        self.what = f"lines from {first} to {last}"
        self.hits = [one for one in self.lines if first <= one.split()[0] <= last]
        return len(self.hits)
    def count(self, level):
        if level not in {"INFO", "WARNING", "ERROR"}:
            raise ValueError(level)
        return sum(one.split()[1] == level for one in self.lines)
    def worst(self):
        counts = Counter(one.split()[2][:-1] for one in self.lines if one.split()[1] == "ERROR")
        return sorted(counts, key=lambda name: (-counts[name], name))[0] if counts else ""
    def render(self, agent=None):
        return "\\n".join([f"{self.what}: {len(self.hits)}", *self.hits[-4:]])
""",
}
FLAWS = {
    "dates": ("(read(second) - read(first)).days", "str((read(second) - read(first)).days)", "are_methods_right"),
    "table": ("self.shown = list(self.rows)", "self.shown = self.rows[1:]", "is_window_right"),
    "log": ("if last < first:", "if False:", "are_refusals_right"),
}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_judged_by_hidden_cases(name: str) -> None:
    with live_task("tool_writing.py", tool=name) as task:
        frame = task.graded()
        assert set(frame.values()) == {False}
        task.act(f"open(FILE, 'w').write({TOOLS[name]!r})")
        assert task.graded() == dict.fromkeys(frame, True)
        assert task.views()["Requirements"].count("all cases pass") == 3
        right, wrong, evaluation = FLAWS[name]
        assert right in TOOLS[name]
        task.act(f"open(FILE, 'w').write({TOOLS[name].replace(right, wrong)!r})")
        assert task.graded()[evaluation] is False
        assert "cases fail" in task.views()["Requirements"]


def test_cases_of_a_tool_that_does_not_run_all_fail() -> None:
    cases = tool_tasks.cases(tool_tasks.DATES, "methods", Random(1))
    assert tool_tasks.grade(tool_tasks.DATES, TOOLS["dates"], cases) == [1.0] * len(cases)
    for broken in ("x =", "while True: pass", "import os\nos._exit(0)", "class DateCalculator: pass"):
        assert tool_tasks.grade(tool_tasks.DATES, broken, cases) == [0.0] * len(cases)
