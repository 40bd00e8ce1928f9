"""Blocks in Postgres: written once, with their rendered text. Only their reward is written later."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from weavegen import sql
from weavegen.kernel.steps import Append, Hit, Reward
from weavegen.store import examples
from weavegen.store.jobs import content_id
from weavegen.store.models.blocks import BLOCKS, CANDIDATES, TOOLSETS
from weavegen.trace.blocks import Block, BlockType
from weavegen.trace.render import render_block


def append(
    conn: sa.Connection, trace_id: int, tick: int, drafts: Iterable[tuple[Append, Block]], steps: dict[int, int]
) -> int:
    """Record blocks. `steps` maps the tick's ordinals to step ids. Returns the bytes of the rendered blocks."""
    rows = []
    for draft, block in drafts:
        candidate_id = None
        if draft.candidate is not None:
            ordinal, position = draft.candidate
            where = (CANDIDATES.c.step_id == steps[ordinal], CANDIDATES.c.position == position)
            candidate_id = conn.execute(sa.select(CANDIDATES.c.id).where(*where)).scalar_one()
        rows.append(
            {
                "trace_id": trace_id,
                "tick": tick,
                "rendered": render_block(block),
                "tags": list(block.tags),
                "score": draft.score,
                "exception": draft.exception,
                "toolset_id": None if draft.tools is None else toolset_id(conn, draft.tools),
                "executed_by": None if draft.executed is None else steps[draft.executed],
                "candidate_id": candidate_id,
                **{name: getattr(block, name) for name in COPIED},
                **{name: getattr(block.label, name, None) for name in ("question", "answer", "probability")},
            }
        )
    if rows:
        conn.execute(sa.insert(BLOCKS), rows)
    return sum(len(row["rendered"].encode()) for row in rows)


def toolset_id(conn: sa.Connection, tools: str) -> int:
    """Id of a set of tools. A new one is written."""
    return content_id(conn, TOOLSETS, hashlib.sha256(tools.encode()).hexdigest(), tools=tools)


COPIED = (
    "index", "subagent", "type", "body", "timestamp", "time_remaining", "block_size", "bm25_query", "title",
    "tick_start", "working_directory", "compiles", "ran",
)  # fmt: skip
"""Columns with the value of the block's attribute of the same name."""


def save_rewards(conn: sa.Connection, trace_id: int, reward: Reward) -> None:
    """Write the shares of a tick's reward, and the corrections of preferences, to its blocks."""
    for index in reward.shares.keys() | reward.preferences.keys():
        block = sa.update(BLOCKS).where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index == index)
        conn.execute(block.values(reward=reward.shares.get(index), preference=reward.preferences.get(index)))


def texts(conn: sa.Connection, trace_id: int, first: int, end: int) -> list[str]:
    """Rendered blocks [first, end) of a trace."""
    where = (BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first, BLOCKS.c.index < end)
    return list(conn.execute(sa.select(BLOCKS.c.rendered).where(*where).order_by(BLOCKS.c.index)).scalars())


def messages(conn: sa.Connection, trace_id: int, first: int, end: int) -> Sequence[Any]:
    """Rows (index, type, text, token_ids) of messages_of_window.sql, for the blocks [first, end) of a trace."""
    return sql.run(conn, "store/messages_of_window", trace=trace_id, first=first, end=end).all()


def retrieved_texts(conn: sa.Connection, hits: Sequence[Hit]) -> list[tuple[BlockType, str]]:
    """Type and text of the retrieved blocks and examples, in the order of `hits`.

    Blocks that were dropped since, because their tick was started over, are left out.
    """
    if not hits:
        return []
    ids = [hit.id for hit in hits if not hit.example]
    query = sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.rendered).where(BLOCKS.c.id.in_(ids))
    blocks = {row.id: (BlockType(row.type), str(row.rendered)) for row in conn.execute(query)}
    seeds = examples.texts(conn, [hit.id for hit in hits if hit.example])
    texts = (seeds.get(hit.id) if hit.example else blocks.get(hit.id) for hit in hits)
    return [text for text in texts if text is not None]


def briefs(conn: sa.Connection, trace_id: int, first: int, until: Any = None) -> Sequence[Any]:
    """Rows (index, type, body) from index `first` on, recorded before `until`: the blocks for an environment."""
    before = sa.true() if until is None else BLOCKS.c.created_at < until
    query = sa.select(*BLOCKS.c["index", "type", "body"]).order_by(BLOCKS.c.index)
    return conn.execute(query.where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first, before)).all()


def drop_from(conn: sa.Connection, trace_id: int, first: int) -> tuple[int, int]:
    """Delete the blocks from index `first` on, and every segment of the trace's index that holds one of them.

    The corpus index keeps them: it checks which of its blocks exist before it answers.

    Returns what is left: bytes, and the number of blocks made of candidates.
    """
    conn.execute(sa.delete(BLOCKS).where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first))
    sql.run(conn, "store/drop_segments", trace=trace_id, first=first)
    size, written = sql.run(conn, "store/blocks_left", trace=trace_id).one()
    return size, written
