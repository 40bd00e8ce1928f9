"""What a check is, how its file is read, and what it found.

A check that SQL can express is a file checks/NAME.sql: a header of comments, then one query for all traces, which
gives a row (trace, place, problem) for each finding. `{scope}` in it stands for the condition on `traces t`,
`{live}` and `{sampled}` for the common table expressions of these names in queries/.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent
HEADER = re.compile(
    r"-- proves: (?P<proves>.+?)\n-- subject: (?P<subject>.+?)\n(-- findings: (?P<findings>.+?)\n)?", re.S
)
WHILE_DOWN = "remarks while the installation is down"
MAX_FINDINGS = 20
"""Findings of a check that are kept; the rest is only counted."""


@dataclass(frozen=True)
class Check:
    """A property that the audit verifies."""

    name: str
    proves: str
    subject: str
    """What it examines: a column of queries/counts.sql, or `host`."""
    remark: bool = False
    """Its findings are remarks, not damage."""
    waits: bool = False
    """Its findings are remarks while the whole installation is down, because `weavegen up` resolves them."""
    sql: str = ""
    """Empty: Python code makes the findings."""


def sql_check(name: str) -> Check:
    """The check in checks/NAME.sql."""
    text = (FOLDER / "checks" / f"{name}.sql").read_text()
    header = HEADER.match(text)
    assert header is not None, f"{name}.sql has no header"
    return Check(
        name,
        header["proves"].replace("\n--  ", ""),
        header["subject"],
        remark=header["findings"] == "remarks",
        waits=header["findings"] == WHILE_DOWN,
        sql=text[header.end() :],
    )


@cache
def query(name: str) -> str:
    """The text of queries/NAME.sql."""
    return (FOLDER / "queries" / f"{name}.sql").read_text()


class Finding(msgspec.Struct, frozen=True):
    """One violation of a check."""

    check: str
    trace: int | None
    place: str
    """The block, step, tick, file, ..."""
    problem: str


class Outcome(msgspec.Struct):
    """The result of one check."""

    name: str
    proves: str
    remark: bool
    looked_at: int = 0
    """How many rows, files or processes it examined."""
    found: int = 0
    findings: list[Finding] = []
    """The first MAX_FINDINGS of those found."""


class Report(msgspec.Struct):
    """The result of an audit."""

    outcomes: list[Outcome]
    counts: dict[str, int]
    """Rows in the scope, by subject: traces, ticks, blocks, ..."""
    paused: bool
    """The installation is down: nothing in it can advance."""

    @property
    def damage(self) -> int:
        """Findings that are not remarks."""
        return sum(outcome.found for outcome in self.outcomes if not outcome.remark)

    @property
    def remarks(self) -> int:
        return sum(outcome.found for outcome in self.outcomes if outcome.remark)
