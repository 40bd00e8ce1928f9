"""An agent's query: its hits, and the record of them."""

from collections.abc import Sequence

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import Hit, Retrieve
from weavegen.search import corpus_index, trace_index
from weavegen.search.corpus_index import Scope
from weavegen.store.traces import job_of
from weavegen.trace.query import parse


def search(conn: Connection, trace_id: int, step: Retrieve) -> list[Hit]:
    """The hits of a query, best first: at most `step.top_k_hits`, none below `step.least_score`.

    Without memory, the query searches the trace's own past and the examples, and BM25's statistics cover these:
    equal traces find equal blocks. With memory it also searches other traces, and the statistics cover the whole
    scope.
    """
    query = parse(step.query)
    if query is None:
        return []
    if step.memory is None:
        return trace_index.search(conn, trace_id, query, step)
    job = job_of(conn, trace_id) if step.memory_scope == "job" else None
    scope = Scope(job_id=job, memory_of=trace_id, before=step.before, memory=step.memory)
    return corpus_index.search(conn, query, scope, least_score=step.least_score, top_k=step.top_k_hits)


def save(conn: Connection, trace_id: int, step_id: int, step: Retrieve, hits: Sequence[Hit]) -> None:
    """Record a query with its cutoff and hits, and index what it could see. The trace must be locked."""
    if step.memory is not None:
        hits = corpus_index.existing(conn, hits, lock=True)  # other traces are not locked
    values = {name: getattr(step, name) for name in ("query", "before", "least_score", "limit")}
    columns = {f"{name}s": [getattr(hit, name) for hit in hits] for name in ("id", "example", "score")}
    sql.run(conn, "search/save_retrieval", trace=trace_id, step=step_id, **values, **columns)
    trace_index.seal(conn, trace_id, step.before)
