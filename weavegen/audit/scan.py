"""One audit in progress: the connection and scope that its checks read with, and the findings so far."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen import sql
from weavegen.agents import AGENTS
from weavegen.audit.report import MAX_FINDINGS, Finding, Outcome
from weavegen.kernel.context import PINNED
from weavegen.kernel.settings import WRITTEN, Settings
from weavegen.kernel.steps import WAITS
from weavegen.pool.tokens import MAX_TAIL_TOKENS
from weavegen.trace.blocks import IMAGINED, MESSAGE, SUCCESSORS

CHUNK_ROWS = 200
"""Rows that a cursor fetches at a time."""

CONVERSING = sorted(name for name, agent in AGENTS.items() if agent.task is not None)
"""Agents that write messages: their traces have no genesis and no rewards, and ticks may have no blocks."""


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

    def __init__(self, conn: sa.Connection, scope: Scope, grace: float) -> None:
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
            "tail": MAX_TAIL_TOKENS,
            "close": len(Settings().message_close),
        }
        """Parameters of the queries."""

    def rows(self, query: str, *, at_once: bool = False, **parameters: Any) -> Iterator[Any]:
        """Rows of a query, CHUNK_ROWS at a time. `at_once` fetches all in one round trip instead of four."""
        query = query.replace("{live}", sql.text("audit/live")).replace("{sampled}", sql.text("audit/sampled"))
        statement = sa.text(query.replace("{scope}", self.scope.condition))
        options = {} if at_once else {"yield_per": CHUNK_ROWS}
        with self.conn.execute(statement, self.parameters | parameters, execution_options=options) as result:
            yield from result

    def add(self, check: str, trace: int | None, place: str, problem: str) -> None:
        """Record a finding of a check."""
        outcome = self.outcomes[check]
        outcome.found += 1
        if len(outcome.findings) < MAX_FINDINGS:
            outcome.findings.append(Finding(check, trace, place, problem))
