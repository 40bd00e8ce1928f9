"""Reading in the corpus: what all traces have written until now."""

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.search import lookup
from weavegen.search.scope import Scope
from weavegen.store import models as m
from weavegen.trace.query import parse, words

BLOCKS, TRACES = map(m.table, (m.Block, m.Trace))
MOST_HITS = 20
MOST_BLOCKS = 50
"""That are read at a time."""
SHOWN = 1_500
"""Characters of a hit, at most."""


def search_corpus(conn: sa.Connection, trace_id: int, /, *, query: str, limit: int = 5) -> str:
    """Blocks of other traces and examples by BM25, best first. A query is one of query.py, or any words."""
    asked = query if parse(query) is not None else " ".join(words(query))  # a sentence with a question mark
    wanted = min(max(limit, 1), MOST_HITS)
    most = wanted
    while True:
        found = lookup.lookup(conn, asked, Scope(), most=most)
        hits = [hit for hit in found if hit.trace != trace_id]
        if len(hits) >= wanted or len(found) < most:
            break
        most *= 4  # what this trace wrote itself took the others' places
    shown = []
    for hit in hits[:wanted]:
        at = f"trace {hit.trace}, block {hit.index}" if hit.example is None else f"example {hit.example}"
        body = hit.body if len(hit.body) <= SHOWN else f"{hit.body[:SHOWN]} ... (goes on)"
        shown.append(f"{at}, {hit.type} (score {hit.score:.2f}):\n{body.strip()}")
    return "\n\n".join(shown) or "nothing in the corpus has any of these words"


def read_blocks(conn: sa.Connection, trace_id: int, /, *, trace: int, first: int = 0, count: int = 10) -> str:
    """Rendered blocks of a trace. Raises UsageError where there are none."""
    number = conn.execute(sa.select(TRACES.c.blocks).where(TRACES.c.id == trace)).scalar_one_or_none()
    if number is None:
        raise UsageError(f"there is no trace {trace}: search_corpus and sql name those that there are")
    first = max(first, 0)
    query = sa.select(BLOCKS.c.rendered).where(
        BLOCKS.c.trace_id == trace,
        BLOCKS.c.index >= first,
        BLOCKS.c.index < first + min(max(count, 1), MOST_BLOCKS),
    )
    found = conn.execute(query.order_by(BLOCKS.c.index)).scalars().all()
    if not found:
        raise UsageError(f"trace {trace} has {number} blocks: there is none from {first} on")
    left = number - first - len(found)
    return "".join(found) + (f"({left} more blocks)" if left > 0 else "")
