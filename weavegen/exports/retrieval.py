"""`retrieval`: training data for writers of queries: from blocks to queries, and from situations to queries.

There are three kinds of rows:

    backtranslation  the hits of a query → the query
    story            the situation → the query that the model wrote in it, then the block that it wrote next
    hindsight        the situation → a query that finds an action known to be good. It consists of words of the
                     situation only, and in weavegen's own search the action is among its best MAX_HITS hits.

A situation is the task, the outcome of the last tick, and the newest orientation before the block. No prompt
contains anything that comes after the block.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.exports.completions import BATCH, GONE, find, values
from weavegen.exports.format import Key, Row, RowFormat, Source, declared
from weavegen.exports.read_prompts import END
from weavegen.exports.text import blocks
from weavegen.kernel import context
from weavegen.kernel.steps import Hit
from weavegen.search import corpus_index
from weavegen.search.corpus_index import Scope
from weavegen.store import blocks as block_rows
from weavegen.store.releases import batches
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import parse, restricted, words

MAX_HITS = 3
"""A hindsight query is good if its block is among this many hits: as many as a prompt shows."""
MAX_WORDS = 12
"""Words of a hindsight query; the instruction asks the model for as many."""
REQUIRED_WORDS = 4
"""The rarest of these words are marked with a + as required."""
MIN_WORD_CHARS = 3
"""Shorter words say nothing."""
NO_QUERY = "no query of the situation's words finds the good action: no row of hindsight"


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    frequencies: Counter[str] | None = None
    for batch in batches(keys, BATCH):
        examples = find(source.conn, "retrieval", trace, batch)
        for key in batch:
            if (row := examples.get(key)) is None:
                source.left_out[GONE] += 1
                continue
            situation = situation_before(source.conn, row)
            if row["retrieval_id"] is not None:
                yield from recorded(source.conn, row, situation)
            if row["known_good"] and situation:
                if frequencies is None:  # of words in the trace's searchable blocks: an estimate for the whole corpus
                    bodies = blocks(source.conn, "retrieval-bodies", trace)
                    frequencies = Counter(word for row in bodies for word in set(words(row.body)))
                if (example := hindsight(source.conn, row, situation, frequencies)) is not None:
                    yield example
                else:
                    source.left_out[NO_QUERY] += 1


def recorded(conn: Connection, row: Any, situation: str) -> Iterator[Row]:
    """The rows of a query that the model wrote before a block."""
    hits = [Hit(**hit) for hit in sql.run(conn, "exports/retrieval-hits", retrieval=row["retrieval_id"]).mappings()]
    texts = block_rows.retrieved_texts(conn, hits)
    shared = values(row, COLUMNS) | hit_columns(texts, hits)
    shared |= {"query": row["query"], "rank": None, "known_good": row["known_good"]}
    if texts:
        prompt = context.retrieved(texts) + "#bm25_query "
        yield shared | {"kind": "backtranslation", "prompt": prompt, "completion": row["query"] + "\n"}
    if situation:
        prompt, written = situation + query_header(row["type"]), row["body"].rstrip("\n") + END
        yield shared | {"kind": "story", "prompt": prompt, "completion": row["query"] + "\n" + written}


def hindsight(conn: Connection, row: Any, situation: str, frequencies: Counter[str]) -> Row | None:
    """The shortest query of the situation's words that finds the action; None if there is none."""
    in_block = set(words(row["body"]))
    shared = [word for word in dict.fromkeys(words(situation)) if word in in_block and is_informative(word)]
    rarest = sorted(shared, key=lambda word: (frequencies[word], word))[:MAX_WORDS]
    for count in sorted({min(REQUIRED_WORDS, len(rarest)), len(rarest)} - {0}):
        required = [f"+{word}" for word in rarest[: min(count, REQUIRED_WORDS)]]
        text = restricted(" ".join([*required, *rarest[len(required) : count]]), BlockType(row["type"]))
        hits = search(conn, text)
        ids = [None if hit.example else hit.id for hit in hits]
        if row["block_id"] in ids:
            found = values(row, COLUMNS) | hit_columns(block_rows.retrieved_texts(conn, hits), hits)
            found |= {"query": text, "rank": ids.index(row["block_id"]) + 1, "known_good": True}
            prompt = situation + query_header(row["type"])
            return found | {"kind": "hindsight", "prompt": prompt, "completion": text + "\n"}
    return None


def hit_columns(texts: list[tuple[BlockType, str]], hits: Sequence[Hit]) -> Row:
    """The columns about a query's hits."""
    return {
        "found": [text for _, text in texts],
        "found_ids": [-hit.id if hit.example else hit.id for hit in hits],
        "scores": [hit.score for hit in hits],
    }


def situation_before(conn: Connection, row: Any) -> str:
    """What the agent knew before a block. Empty where it had no orientation."""
    place = {"trace": row["trace_id"], "index": row["index"], "subagent": row["subagent"]}
    bodies = {block.type: block.body for block in sql.run(conn, "exports/retrieval-situation", **place)}
    parts = [bodies[type] for type in ("task-reminder", "outcome", "orientation") if type in bodies]
    return "\n\n".join(parts) + "\n\n" if "orientation" in bodies else ""


def query_header(type: str) -> str:
    """The header of a block up to its query."""
    return f"#startblock type: {type}\n#bm25_query "


def search(conn: Connection, text: str) -> Sequence[Hit]:
    """The best MAX_HITS hits of a query in the whole corpus."""
    parsed = parse(text)
    return [] if parsed is None else corpus_index.search(conn, parsed, Scope(), least_score=0.0, top_k=MAX_HITS)


def is_informative(word: str) -> bool:
    """Whether a word is not a particle or a number."""
    return len(word) >= MIN_WORD_CHARS and re.search("[^0-9_]", word) is not None and word not in COMMON


COMMON = set(
    words("""
    about after again all and any are because before but can def did does else for from has have here how its not
    now off one only other out return returns self should that the them then there these they this true false none
    was were what when where which while who will with would you your
    """)
)
"""Words that occur in nearly every block."""

DECLARED = declared("retrieval")
COLUMNS: list[str] = DECLARED["schema"].names
FORMAT = RowFormat(rows=rows, **DECLARED)
