"""Tools that read the corpus: the blocks of all traces by BM25 or place; and all of it by SQL, as the reader's role."""

from typing import Any

from weavegen.database import Connection
from weavegen.errors import UsageError, required
from weavegen.search.corpus_index import Scope
from weavegen.search.user_search import search_texts
from weavegen.sql import run
from weavegen.store import blocks, reports
from weavegen.trace.query import parse, words

MAX_HITS = 20
MAX_BLOCKS = 50
"""How many blocks one call reads at most."""
MAX_HIT_CHARS = 1_500
TIMEOUT_SECONDS = 10.0
"""Time limit of a query, here and in the other tools."""
MAX_ROWS = 50
MAX_VALUE_CHARS = 400


def search_corpus(conn: Connection, trace_id: int, *, query: str, limit: int) -> str:
    """Blocks of other traces and examples by BM25, best first. The query may also be a sentence."""
    query = query if parse(query) is not None else " ".join(words(query))
    limit = min(max(limit, 1), MAX_HITS)
    top_k = limit
    while True:
        found = search_texts(conn, query, Scope(), top_k=top_k)
        hits = [hit for hit in found if hit.trace != trace_id]
        if len(hits) >= limit or len(found) < top_k:
            break
        top_k *= 4  # blocks of the asking trace took the places of others
    shown = []
    for hit in hits[:limit]:
        place = f"trace {hit.trace}, block {hit.index}" if hit.example is None else f"example {hit.example}"
        body = hit.body if len(hit.body) <= MAX_HIT_CHARS else f"{hit.body[:MAX_HIT_CHARS]} ... (goes on)"
        shown.append(f"{place}, {hit.type} (score {hit.score:.2f}):\n{body.strip()}")
    return "\n\n".join(shown) or "nothing in the corpus has any of these words"


def read_blocks(conn: Connection, trace_id: int, *, trace: int, first: int, count: int) -> str:
    """Rendered blocks of a trace. Raises UsageError if there are none."""
    found = run(conn, "search/blocks_of_trace", trace=trace).scalar_one_or_none()
    total = required(found, f"there is no trace {trace}: search_corpus and sql give the numbers of traces")
    first = max(first, 0)
    texts = blocks.texts(conn, trace, first, first + min(max(count, 1), MAX_BLOCKS))
    if not texts:
        raise UsageError(f"trace {trace} has {total} blocks: there is none from {first} on")
    left = total - first - len(texts)
    return "".join(texts) + (f"({left} more blocks)" if left > 0 else "")


def sql(conn: Connection, trace_id: int, *, query: str) -> str:
    """The first rows of a SELECT as a table. Raises UsageError if it fails or takes too long."""
    inner = query.strip().rstrip(";")
    # The query is wrapped, so that its result is text of bounded length. The first run only gives the columns.
    columns, _ = reports.select(conn, f"select * from (\n{inner}\n) as found limit 0", TIMEOUT_SECONDS, 0)
    if not columns:
        raise UsageError("the query gives no columns: select some")
    names = [f"c{number}" for number in range(len(columns))]
    values = ", ".join(f"left({name}::text, {MAX_VALUE_CHARS + 1})" for name in names)
    wrapped = f"select {values} from (\n{inner}\n) as found({', '.join(names)}) limit {MAX_ROWS + 1}"
    _, rows = reports.select(conn, wrapped, TIMEOUT_SECONDS, MAX_ROWS + 1)
    shown = [" | ".join(columns), *(" | ".join(map(cell, row)) for row in rows[:MAX_ROWS])]
    count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
    shown.append(f"(more than {MAX_ROWS} rows: these are the first)" if len(rows) > MAX_ROWS else f"({count})")
    return "\n".join(shown)


def cell(value: Any) -> str:
    """A value in one line. A null differs from an empty text."""
    if value is None:
        return "null"
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[:MAX_VALUE_CHARS]}..."
    return text.replace("\\", "\\\\").replace("\n", "\\n")
