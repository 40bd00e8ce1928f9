"""BM25 over a trace's own blocks, with rank-bm25 as the scorer."""

import re

import sqlalchemy as sa
from rank_bm25 import BM25Okapi

from weavegen.blocks import BlockType
from weavegen.steps import Hit, Retrieve
from weavegen.store import models as m

BLOCKS = m.table(m.Block)
LEAST_SCORE = 2.0
"""Hits below this are noise (WEAVE section 7)."""
RECALLABLE = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
_WORD = re.compile(r"[A-Za-z0-9]+|_")


def tokens(text: str) -> list[str]:
    """The words of a text, lower-cased; names in snake_case fall into their parts."""
    return [word.lower() for word in _WORD.findall(text) if word != "_"]


def search(conn: sa.Connection, trace_id: int, step: Retrieve) -> list[Hit]:
    """The best blocks for a query among those that have left the window, best first."""
    rows = conn.execute(
        sa.select(BLOCKS.c.id, BLOCKS.c.body).where(
            BLOCKS.c.trace_id == trace_id, BLOCKS.c.index < step.before, BLOCKS.c.type.in_(RECALLABLE)
        )
    ).all()
    words = tokens(step.query)
    if not rows or not words:
        return []
    scores = BM25Okapi([tokens(row.body) or [""] for row in rows]).get_scores(words)
    ranked = sorted(zip(scores, rows, strict=True), key=lambda pair: (-pair[0], -pair[1].id))
    return [Hit(id=row.id, score=float(score)) for score, row in ranked[: step.limit] if score >= LEAST_SCORE]
