"""What a check is, how its file is read, what it found; and an audit in progress.

A check that SQL can express is a file checks/NAME.sql: a header of comments, then one query for all traces, which
gives a row (trace, place, problem) for each finding. `{scope}` in it stands for the condition on `traces t`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weavegen import sql
from weavegen.agents import AGENTS
from weavegen.database import Connection, Statement
from weavegen.kernel.context import PINNED
from weavegen.kernel.settings import WRITTEN
from weavegen.kernel.steps import WAITS
from weavegen.kernel.template import PLAIN
from weavegen.pool.tokens import MAX_TAIL_TOKENS
from weavegen.store.workers import SILENT_SECONDS
from weavegen.trace.blocks import IMAGINED, MESSAGE, SUCCESSORS

FOLDER = Path(__file__).parent / "checks"
HEADER = re.compile(
    r"-- proves: (?P<proves>.+?)\n-- subject: (?P<subject>.+?)\n(-- findings: (?P<findings>.+?)\n)?", re.S
)
WHILE_DOWN = "remarks while the installation is down"
CHUNK_ROWS = 200
"""Rows that a cursor fetches at a time."""
CONVERSING = sorted(name for name, agent in AGENTS.items() if agent.task is not None)
"""Agents that write messages: their traces have no genesis and no rewards, and ticks may have no blocks."""
MAX_FINDINGS = 20
"""Findings of a check that are kept; the rest is only counted."""


@dataclass(frozen=True)
class Check:
    """A property that the audit verifies."""

    name: str
    proves: str
    subject: str
    """What it examines: a column of sql/counts.sql, or `host`."""
    remark: bool = False
    """Its findings are remarks, not damage."""
    waits: bool = False
    """Its findings are remarks while the whole installation is down, because `weavegen up` resolves them."""
    sql: str = ""
    """Empty: Python code makes the findings."""


def sql_check(name: str) -> Check:
    """The check in checks/NAME.sql."""
    text = sql.included((FOLDER / f"{name}.sql").read_text())
    header = HEADER.match(text)
    assert header is not None, f"{name}.sql has no header"
    proves, findings, query = header["proves"].replace("\n--  ", ""), header["findings"], text[header.end() :]
    remark, waits = findings == "remarks", findings == WHILE_DOWN
    return Check(name, proves, header["subject"], remark=remark, waits=waits, sql=query)


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


@dataclass(frozen=True)
class Scope:
    """The traces to audit; by default all."""

    job: int | None = None
    trace: int | None = None

    @property
    def condition(self) -> str:
        """An SQL condition on a row `t` of `traces`."""
        if self.trace is not None:
            return "t.id = :trace"
        return "t.job_id = :job" if self.job is not None else "true"


class Scan:
    """The state of one audit."""

    def __init__(self, conn: Connection, scope: Scope, grace: float) -> None:
        self.conn, self.scope, self.grace = conn, scope, grace
        self.outcomes: dict[str, Outcome] = {}
        """By the check's name."""
        self.parameters: dict[str, Any] = {
            "trace": scope.trace,
            "job": scope.job,
            "grace": grace,
            "legal": [f"{before} {after}" for before, allowed in SUCCESSORS.items() for after in allowed],
            "writable": [str(type) for type in WRITTEN],
            "written": [str(type) for type in WRITTEN if type not in IMAGINED],
            "pinned": PINNED,
            "messages": [str(type) for type in MESSAGE],
            "conversing": CONVERSING,
            "waits": list(WAITS),
            "silent": SILENT_SECONDS,
            "tail": MAX_TAIL_TOKENS,
            "close": len(PLAIN.assistant_close),
        }
        """Parameters of the queries."""

    def rows(self, query: str, *, at_once: bool = False, **parameters: Any) -> Iterator[Any]:
        """Rows of a query, CHUNK_ROWS at a time. `at_once` fetches all in one round trip instead of four."""
        statement = Statement(query.replace("{scope}", self.scope.condition))
        values = self.parameters | parameters
        yield from self.conn.execute(statement, values) if at_once else self.conn.stream(statement, values, CHUNK_ROWS)

    def add(self, check: str, trace: int | None, place: str, problem: str) -> None:
        """Record a finding of a check."""
        outcome = self.outcomes[check]
        outcome.found += 1
        if len(outcome.findings) < MAX_FINDINGS:
            outcome.findings.append(Finding(check, trace, place, problem))
