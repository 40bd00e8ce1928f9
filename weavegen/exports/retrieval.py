"""`retrieval`: what a writer of queries learns from, from blocks back to queries and from situations to them.

Three kinds of rows:

    backtranslation  what a query found → the query
    story            the situation → the query that the model wrote in it, then the block that it wrote after it
    hindsight        the situation → a query that finds an action known to be good, made of words of the situation
                     alone, which was run through weavegen's own search and found it among the best TOP

A situation is the task, how the last tick came out, and the newest orientation before the block. What comes after
the block is in no prompt.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import GONE, PLACE, batches, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import END
from weavegen.kernel import context
from weavegen.kernel.steps import Hit
from weavegen.search import corpus_index
from weavegen.search.scope import Scope
from weavegen.store import blocks as block_rows
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import parse, restricted, words

TOP = 3
"""A query is a good one that has its block among so many hits: as many as a prompt shows."""
WORDS = 12
"""Of a query that is made, at most; the instruction asks the model for as many."""
WANTED = 4
"""Of these, marked with a +: the rarest."""
SHORTEST = 3
"""Characters of a word that says something."""

EXAMPLES = """
select v.*, b.body from retrieval_examples v join blocks b on b.id = v.block_id
where v.trace_id = :trace and v.block_id = any(cast(:ids as bigint[]))
"""
HITS = """
select h.block_id, h.example_id, h.score, h.rank from retrieval_hits h
where h.retrieval_id = :retrieval and h.used order by h.rank
"""
# The newest of each type before the block, of the same subagent.
SITUATION = """
select distinct on (b.type) b.type, b.body from blocks b
where b.trace_id = :trace and b.index < :index and b.subagent = :subagent
  and b.type in ('task-reminder', 'orientation', 'outcome') and (b.type <> 'orientation' or b.compiles)
order by b.type, b.index desc
"""
BODIES = """
select b.index, b.body from blocks b where b.trace_id = :trace and b.index >= :first and b.index < :end
  and b.type in ('orientation', 'action', 'evaluation', 'debug', 'error')
"""
PAGE = 512
"""Blocks fetched at a time."""

SCHEMA = pa.schema(
    [
        column("kind", pa.string(), "backtranslation, story or hindsight, see docs/exports.md."),
        column("prompt", pa.string(), "What there is: blocks that were found, or the situation."),
        column("completion", pa.string(), "What is to be written: the query; of a story the block, too."),
        column("query", pa.string(), "The query."),
        column("found", pa.list_(pa.string()), "Texts that it found, best first: those the model was shown."),
        column("found_ids", pa.list_(pa.int64()), "Their blocks.id; of an example its id, negative."),
        column("scores", pa.list_(pa.float64()), "Their BM25 scores."),
        column("rank", pa.int32(), "hindsight: the place of the block among the hits, from 1. Else null."),
        column("known_good", pa.bool_(), "Whether the block is an action that ran and was rewarded."),
        *PLACE,
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    rarity: Counter[str] | None = None
    for batch in batches(keys):
        wanted = {"trace": trace, "ids": [block for _, _, block in batch]}
        found = {row["block_id"]: row for row in source.conn.execute(sa.text(EXAMPLES), wanted).mappings()}
        for _, _, block in batch:
            if block not in found:
                source.leave_out(GONE)
                continue
            row = found[block]
            situation = told(source.conn, row)
            if row["retrieval_id"] is not None:
                yield from recorded(source, row, situation)
            if row["known_good"] and situation:
                rarity = holding(source.conn, trace) if rarity is None else rarity
                made = hindsight(source.conn, row, situation, rarity)
                if made is None:
                    source.leave_out(
                        "no query of the situation's words finds the good action: no row of hindsight"
                    )
                else:
                    yield made


def recorded(source: Source, row: Any, situation: str) -> Iterator[Row]:
    """What the model asked for itself before a block."""
    hits = [
        Hit(id=hit.example_id or hit.block_id, example=hit.example_id is not None, score=hit.score)
        for hit in source.conn.execute(sa.text(HITS), {"retrieval": row["retrieval_id"]})
    ]
    texts = block_rows.recalled(source.conn, hits)
    shared = values(row, PLACE) | {
        "query": row["query"],
        "found": [text for _, text in texts],
        "found_ids": [-hit.id if hit.example else hit.id for hit in hits],
        "scores": [hit.score for hit in hits],
        "rank": None,
        "known_good": row["known_good"],
    }
    if texts:
        yield shared | {
            "kind": "backtranslation",
            "prompt": context.retrieved(texts) + "#bm25_query ",
            "completion": row["query"] + "\n",
        }
    if situation:
        yield shared | {
            "kind": "story",
            "prompt": situation + asked_for(row["type"]),
            "completion": row["query"] + "\n" + row["body"].rstrip("\n") + END,
        }


def told(conn: sa.Connection, row: Any) -> str:
    """What the agent knew before a block: the task, how the last tick came out, what it thought of it."""
    where = {"trace": row["trace_id"], "index": row["index"], "subagent": row["subagent"]}
    bodies = {found.type: found.body for found in conn.execute(sa.text(SITUATION), where)}
    parts = [bodies[type] for type in ("task-reminder", "outcome", "orientation") if type in bodies]
    return "\n\n".join(parts) + "\n\n" if "orientation" in bodies else ""


def asked_for(type: str) -> str:
    return f"#startblock type: {type}\n#bm25_query "


def holding(conn: sa.Connection, trace: int) -> Counter[str]:
    """In how many blocks of a trace that can be found each word stands: these stand for all."""
    found: Counter[str] = Counter()
    count = conn.execute(sa.text("select blocks from traces where id = :trace"), {"trace": trace}).scalar_one()
    for first in range(0, count, PAGE):
        where = {"trace": trace, "first": first, "end": first + PAGE}
        for row in conn.execute(sa.text(BODIES), where):
            found.update(set(words(row.body)))
    return found


def hindsight(conn: sa.Connection, row: Any, situation: str, rarity: Counter[str]) -> Row | None:
    """The shortest query of the situation's words that finds the action; None where none does."""
    known = set(words(row["body"]))
    shared = [word for word in dict.fromkeys(words(situation)) if word in known and telling(word)]
    rarest = sorted(shared, key=lambda word: (rarity[word], word))[:WORDS]
    for number in dict.fromkeys((min(WANTED, len(rarest)), len(rarest))):
        if not number:
            continue
        marked = [f"+{word}" for word in rarest[: min(number, WANTED)]]
        query = restricted(" ".join([*marked, *rarest[len(marked) : number]]), BlockType(row["type"]))
        hits = run(conn, query)
        place = next(
            (rank for rank, hit in enumerate(hits, 1) if hit.id == row["block_id"] and not hit.example), None
        )
        if place is not None:
            texts = block_rows.recalled(conn, hits)
            return values(row, PLACE) | {
                "kind": "hindsight",
                "prompt": situation + asked_for(row["type"]),
                "completion": query + "\n",
                "query": query,
                "found": [text for _, text in texts],
                "found_ids": [-hit.id if hit.example else hit.id for hit in hits],
                "scores": [hit.score for hit in hits],
                "rank": place,
                "known_good": True,
            }
    return None


def run(conn: sa.Connection, query: str) -> Sequence[Hit]:
    """The best TOP that a query finds in the whole corpus."""
    parsed = parse(query)
    return [] if parsed is None else corpus_index.search(conn, parsed, Scope(), least_score=0.0, top_k=TOP)


def telling(word: str) -> bool:
    """Whether a word is more than a particle or a number."""
    return len(word) >= SHORTEST and re.search("[^0-9_]", word) is not None and word not in COMMON


COMMON = set(
    words("""
    about after again all and any are because before but can def did does else for from has have here how its not
    now off one only other out return returns self should that the them then there these they this true false none
    was were what when where which while who will with would you your
    """)
)
"""Words that stand in nearly every block."""

FORMAT = RowFormat(
    name="retrieval",
    about="Queries for what was found, for situations, and queries that would have found a known-good action.",
    view="retrieval_examples",
    key=("trace_id", "index", "block_id"),
    schema=SCHEMA,
    rows=rows,
)
