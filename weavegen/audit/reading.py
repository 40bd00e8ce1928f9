"""One audit under way: the rows that it reads, and what it has found so far."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.agents import AGENTS
from weavegen.audit.report import SHOWN, Finding, Outcome
from weavegen.kernel.context import PINNED
from weavegen.kernel.settings import WRITTEN, Settings
from weavegen.kernel.steps import WAITS
from weavegen.pool.tokens import MAX_TAIL_TOKENS
from weavegen.trace.blocks import IMAGINED, MESSAGE, SUCCESSORS

CHUNK = 200
"""Rows that a cursor fetches at a time."""

CONVERSING = sorted(name for name, agent in AGENTS.items() if agent.task is not None)
"""Agents that write messages: their traces have no genesis and no rewards, and ticks may be without blocks."""

LIVE = """
live as (
  select k.* from ticks k join traces t on t.id = k.trace_id
  where {scope} and (k.finished_at is null or k.caller is null or exists (
    select from blocks b where b.trace_id = k.trace_id and b.index = k.first_block and b.tick = k.number))
)
"""
"""Ticks whose blocks have not been dropped."""

SAMPLED = """
sampled as (
  select c.step_id, c.trace_id, count(*) as n, max(c.position) as last, count(p.candidate_id) as linted
  from candidates c join traces t on t.id = c.trace_id left join penalties p on p.candidate_id = c.id
  where {scope} group by c.step_id, c.trace_id
)
"""
"""What there is of candidates, by the step that sampled them."""


@dataclass(frozen=True)
class Scope:
    """Which traces are audited; all of them by default."""

    job: int | None = None
    trace: int | None = None

    @property
    def condition(self) -> str:
        """On a row `t` of `traces`."""
        if self.trace is not None:
            return "t.id = :trace"
        return "t.job_id = :job" if self.job is not None else "true"


class Audit:
    """One audit: its connection and scope, and what has been found so far."""

    def __init__(self, conn: sa.Connection, scope: Scope, grace: float) -> None:
        self.conn, self.scope, self.grace = conn, scope, grace
        self.outcomes: dict[str, Outcome] = {}
        """By check."""
        self.values: dict[str, Any] = {
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
        """Parameters of the statements."""

    def rows(self, sql: str, *, few: bool = False, **values: Any) -> Iterator[Any]:
        """Rows of a statement, fetched CHUNK at a time; `few`: at once, which takes a round trip and not four."""
        for name, part in (("{live}", LIVE), ("{sampled}", SAMPLED), ("{scope}", self.scope.condition)):
            sql = sql.replace(name, part)
        options = {} if few else {"yield_per": CHUNK}
        with self.conn.execute(sa.text(sql), self.values | values, execution_options=options) as result:
            yield from result

    def found(self, check: str, trace: int | None, place: str, problem: str) -> None:
        outcome = self.outcomes[check]
        outcome.found += 1
        if len(outcome.findings) < SHOWN:
            outcome.findings.append(Finding(check, trace, place, problem))
