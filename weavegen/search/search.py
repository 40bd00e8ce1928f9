"""An agent's query: what it finds, and what is kept of that."""

from collections.abc import Sequence

import sqlalchemy as sa

from weavegen.kernel.steps import Hit, Retrieve
from weavegen.search import corpus_search, trace_index
from weavegen.search.scope import Memory, Scope
from weavegen.store import models as m
from weavegen.trace.query import parse

RETRIEVALS, HITS, TRACES = map(m.table, (m.Retrieval, m.RetrievalHit, m.Trace))


def search(conn: sa.Connection, trace_id: int, step: Retrieve) -> list[Hit]:
    """What a query finds, best first: `step.top_k_hits` hits at most, none below `step.least_score`.

    Without a memory in what its trace has left behind and the examples, and with the statistics of these: equal
    traces find equal blocks. With one also in other traces: then the statistics are those of the whole scope.
    """
    query = parse(step.query)
    if query is None:
        return []
    if step.memory is None:
        return trace_index.search(conn, trace_id, query, step)
    job = None
    if step.memory_scope == "job":
        job = conn.execute(sa.select(TRACES.c.job_id).where(TRACES.c.id == trace_id)).scalar_one()
    memory = Memory(trace_id=trace_id, before=step.before, score=step.memory)
    scope = Scope(job_id=job, memory=memory)
    return corpus_search.search(conn, query, scope, least_score=step.least_score, most=step.top_k_hits)


def save(conn: sa.Connection, trace_id: int, step_id: int, step: Retrieve, found: Sequence[Hit]) -> None:
    """Keep the query, what it could see and what it found; index what it could see. The trace must be locked."""
    values = {"trace_id": trace_id, "step_id": step_id, "query": step.query, "before": step.before}
    values["least_score"] = step.least_score
    if step.memory is not None:
        found = still_there(conn, found)
    id = conn.execute(sa.insert(RETRIEVALS).values(values).returning(RETRIEVALS.c.id)).scalar_one()
    rows = [
        {
            "retrieval_id": id,
            "rank": rank,
            "block_id": None if hit.example else hit.id,
            "example_id": hit.id if hit.example else None,
            "score": hit.score,
            "used": rank <= step.limit,
        }
        for rank, hit in enumerate(found, 1)
    ]
    if rows:
        conn.execute(sa.insert(HITS), rows)
    trace_index.seal(conn, trace_id, step.before)


def still_there(conn: sa.Connection, found: Sequence[Hit]) -> list[Hit]:
    """Those that may be referred to. Blocks of other traces, which are not locked, may have been dropped since."""
    ids = [hit.id for hit in found if not hit.example]
    held = sa.text("select id from blocks where id = any(:ids) for key share")
    there = set(conn.execute(held, {"ids": ids}).scalars())
    return [hit for hit in found if hit.example or hit.id in there]
