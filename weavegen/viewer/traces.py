"""A trace: what it is, its blocks in pieces, its history, its problem map, its messages."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError

PIECE = 25
"""Blocks that are fetched at a time."""


@dataclass(frozen=True)
class Mark:
    """Where a trace stands; a page that knows it asks for what came after."""

    blocks: int
    restarts: int
    """Blocks change with these alone."""
    status: str
    ticks: int

    @property
    def over(self) -> bool:
        return self.status in ("ended", "failed", "cancelled")


def mark(conn: sa.Connection, trace_id: int) -> Mark:
    """Raises UsageError if there is no such trace."""
    query = "select blocks, restarts, status, ticks from traces where id = :trace"
    row = conn.execute(sa.text(query), {"trace": trace_id}).one_or_none()
    if row is None:
        raise UsageError(f"there is no trace {trace_id}")
    return Mark(*row)


def trace(conn: sa.Connection, trace_id: int) -> dict[str, Any]:
    """All about a trace that its page says above its blocks. Raises UsageError if there is none."""
    row = conn.execute(
        sa.text(
            """
            select t.id, t.job_id, j.name as job, j.agent, j.model, t.number, b.name as bootstrap,
              t.seed, t.status, t.ended_because, t.failure_kind, t.failure, t.returned, t.params, t.ticks,
              t.blocks, t.bytes, t.restarts, t.sampled_tokens, t.candidates, t.written, t.server, t.started_at,
              t.finished_at, t.fork_of, t.fork_at, t.retry_of, s.trace_id as asked_by,
              extract(epoch from coalesce(t.finished_at, now()) - t.started_at)::float as seconds,
              (select sum(k.reward) from ticks k where k.trace_id = t.id) as reward,
              array(select r.id from traces r where r.retry_of = t.id order by r.id) as retries,
              array(select f.id from traces f where f.fork_of = t.id order by f.id limit 50) as forks,
              exists (select from channels c where c.trace_id = t.id) as talks
            from traces t join jobs j on j.id = t.job_id join bootstraps b on b.id = t.bootstrap_id
            left join steps s on s.id = t.called_by
            where t.id = :trace
            """
        ),
        {"trace": trace_id},
    ).one_or_none()
    if row is None:
        raise UsageError(f"there is no trace {trace_id}")
    return dict(row._mapping)


def pieces(conn: sa.Connection, trace_id: int) -> list[tuple[int, int]]:
    """Blocks and bytes of each piece of a trace, in order: enough to lay out a page before anything is fetched."""
    query = """
        select count(*), sum(octet_length(rendered))::bigint from blocks
        where trace_id = :trace group by index / :piece order by index / :piece
        """
    return [(row[0], row[1]) for row in conn.execute(sa.text(query), {"trace": trace_id, "piece": PIECE})]


def blocks(conn: sa.Connection, trace_id: int, first: int, end: int) -> list[dict[str, Any]]:
    """Blocks [first, end), each with its `asked` (scores per question), `penalties` and number of `candidates`."""
    span = {"trace": trace_id, "first": first, "end": end}
    rows = conn.execute(
        sa.text(
            """
            select b.index, b.tick, b.subagent, b.type, b.body, b.timestamp, b.time_remaining,
              b.bm25_query, b.title, b.compiles, b.question, b.answer, b.probability, b.ran, b.exception, b.tags,
              b.score, b.reward, b.preference, b.candidate_id, c.tokens, c.logprobs is not null as has_logprobs
            from blocks b left join candidates c on c.id = b.candidate_id
            where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
            """
        ),
        span,
    )
    found = [dict(row._mapping) for row in rows]
    if not found:
        return []
    chosen = [row["candidate_id"] for row in found if row["candidate_id"] is not None]
    asked = scores(conn, chosen)
    held = penalties(conn, chosen)
    # By the steps of these ticks, whose index makes it cheap: a trace may have a million candidates.
    counts = sa.text(
        """
        select c.block_index, count(*) from steps s join candidates c on c.step_id = s.id
        where s.trace_id = :trace and s.tick between :low and :high and s.kind = 'sample'
          and c.block_index >= :first and c.block_index < :end and c.type not in ('bm25-query', 'next-type')
        group by c.block_index
        """
    )
    ticks = [row["tick"] for row in found]
    sampled: dict[int, int] = {
        row[0]: row[1] for row in conn.execute(counts, {**span, "low": min(ticks), "high": max(ticks)})
    }
    for row in found:
        row["asked"] = asked.get(row["candidate_id"], [])
        row["penalties"] = held.get(row["candidate_id"], {})
        row["candidates"] = sampled.get(row["index"], 1 if row["candidate_id"] is not None else 0)
    return found


@dataclass(frozen=True)
class Asked:
    """A question that the model was asked about a text, and its answer."""

    stage: str
    """selection: about the text as sampled; raw: as rewritten."""
    question: str
    yes: float
    no: float
    score: float | None
    """Log odds; None: neither had any mass."""

    @property
    def share(self) -> float | None:
        """Of yes, in yes and no."""
        return self.yes / (self.yes + self.no) if self.yes + self.no > 0 else None


def scores(conn: sa.Connection, candidates: list[int]) -> dict[int, list[Asked]]:
    """The questions asked about candidates, in the order in which they were."""
    query = """
        select candidate_id, stage, question, yes, no, score from scores where candidate_id = any(:ids) order by id
        """
    found: dict[int, list[Asked]] = {}
    for candidate, *values in conn.execute(sa.text(query), {"ids": candidates}):
        found.setdefault(candidate, []).append(Asked(*values))
    return found


PENALTIES = {
    "syntax": "does not compile",
    "extra_elements": "more top-level elements than its shape has",
    "not_a_string": "does not begin with a string",
    "code_in_prose": "code inside prose",
    "shape": "not exactly a function and its registration",
    "wrong_name": "registers another name than the function's",
    "title": "title is no question, or can't be read",
    "assertions": "assertions missing, without a question, inside a try, or too many",
    "forbidden_calls": "calls that do not belong into an action",
    "length_after_debug": "too long straight after a debug block",
}
"""Columns of the table penalties, in words."""


def penalties(conn: sa.Connection, candidates: list[int]) -> dict[int, dict[str, Any]]:
    """What linting found in candidates: `compiles`, `error`, `rewritten`, and `held`, the penalties above 0."""
    query = f"""
        select candidate_id, compiles, viable, error, rewritten, {", ".join(PENALTIES)} from penalties
        where candidate_id = any(:ids)
        """  # the names are ours
    found: dict[int, dict[str, Any]] = {}
    for row in conn.execute(sa.text(query), {"ids": candidates}):
        held = {name: value for name in PENALTIES if (value := row._mapping[name])}
        found[row.candidate_id] = {**row._mapping, "held": held}
    return found


def history(conn: sa.Connection, trace_id: int) -> list[dict[str, Any]]:
    """What happened to a trace besides its blocks, in order."""
    query = "select at, kind, detail from events where trace_id = :trace order by id limit 500"
    return [dict(row._mapping) for row in conn.execute(sa.text(query), {"trace": trace_id})]


@dataclass
class Problem:
    """A subagent of the problem map, with those that it made."""

    name: str
    description: str
    schema: dict[str, Any]
    minutes: float
    completed: bool
    returned: Any
    evaluations: list[dict[str, Any]]
    """The latest result of each of its task's evaluations."""
    children: list["Problem"]


def problem_map(conn: sa.Connection, trace_id: int) -> list[Problem]:
    """The agents of a trace, as a forest; a parent that is not recorded counts as none."""
    span = {"trace": trace_id}
    latest = conn.execute(
        sa.text(
            """
            select distinct on (k.subagent, e.title) k.subagent, e.title, e.value, e.error, e.tick
            from evaluations e join ticks k on k.trace_id = e.trace_id and k.number = e.tick
            where e.trace_id = :trace and e.scope = 'task' order by k.subagent, e.title, e.tick desc, e.id desc
            """
        ),
        span,
    ).all()
    rows = conn.execute(sa.text("select * from subagents where trace_id = :trace order by id"), span).all()
    found = {
        row.name: Problem(
            row.name, row.description, row.schema, row.time_budget, row.completed, row.returned,
            [dict(one._mapping) for one in latest if one.subagent == row.name], [],
        )
        for row in rows
    }  # fmt: skip
    roots: list[Problem] = []
    for row in rows:
        siblings = found[row.parent].children if row.parent in found and row.parent != row.name else roots
        siblings.append(found[row.name])
    return roots


def rendered(conn: sa.Connection, trace_id: int, chunk: int = 500) -> Iterator[str]:
    """The trace's file, some blocks at a time."""
    query = sa.text(
        "select rendered from blocks where trace_id = :trace and index >= :first and index < :end order by index"
    )
    for first in range(0, mark(conn, trace_id).blocks, chunk):
        span = {"trace": trace_id, "first": first, "end": first + chunk}
        yield "".join(conn.execute(query, span).scalars())


def finite(value: float | None) -> float | None:
    """A number that can be shown."""
    return value if value is not None and math.isfinite(value) else None
