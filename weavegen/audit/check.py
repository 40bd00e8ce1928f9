"""What a check is, and what there is to look at."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that is proved."""

    name: str
    proves: str
    subject: str
    """What is looked at: a key of COUNTS, or `host`."""
    remark: bool = False
    """Its findings are no damage."""
    waits: bool = False
    """Its findings are no damage while the whole installation is down: `weavegen up` sees to them."""
    sql: str = ""
    """Rows (trace, place, problem), a row a finding; empty: Python finds them."""


COUNTS = {
    "traces": "select count(*) from traces t where {scope}",
    "running traces": "select count(*) from traces t where {scope} and t.status = 'running'",
    "ticks": "select count(*) from ticks k join traces t on t.id = k.trace_id where {scope}",
    "blocks": "select count(*) from blocks b join traces t on t.id = b.trace_id where {scope}",
    "candidates": "select count(*) from candidates c join traces t on t.id = c.trace_id where {scope}",
    "steps": "select count(*) from steps s join traces t on t.id = s.trace_id where {scope}",
    "open steps": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.status in ('ready', 'running')",
    "samples": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.kind = 'sample'",
    "scorings": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.kind = 'score'",
    "executions": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.kind = 'execute'",
    "retrievals": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.kind = 'retrieve'",
    "calls": "select count(*) from steps s join traces t on t.id = s.trace_id where {scope} and s.kind = 'work'",
    "delegations": "select count(*) from steps s join traces t on t.id = s.trace_id "
    "where {scope} and s.kind = 'delegate'",
    "replies": "select count(*) from blocks b join traces t on t.id = b.trace_id "
    "where {scope} and b.type = 'assistant'",
    "programs": "select count(*) from programs p join traces t on t.id = p.trace_id where {scope}",
    "subagents": "select count(*) from subagents a join traces t on t.id = a.trace_id where {scope}",
    "events": "select count(*) from events e join traces t on t.id = e.trace_id where {scope}",
    "channels": "select count(*) from channels c join traces t on t.id = c.trace_id where {scope}",
    "environments": "select count(*) from environments e join traces t on t.id = e.trace_id where {scope}",
}
"""Statements that say how much there is of each subject."""
