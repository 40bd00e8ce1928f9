"""Blocks in Postgres: written once, with their rendered text, and never changed but for their reward."""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from weavegen.kernel.steps import Append, Hit, Reward
from weavegen.store import examples
from weavegen.store import models as m
from weavegen.trace.blocks import Block, BlockType
from weavegen.trace.render import render_block

BLOCKS, CANDIDATES, SEGMENTS, POSTINGS = map(m.table, (m.Block, m.Candidate, m.Segment, m.Posting))


def append(
    conn: sa.Connection, trace_id: int, tick: int, drafts: Iterable[tuple[Append, Block]], steps: dict[int, int]
) -> int:
    """Record blocks. `steps` maps the tick's ordinals to step ids. Returns the bytes of their texts."""
    rows, size = [], 0
    for draft, block in drafts:
        rendered = render_block(block)
        size += len(rendered.encode())
        label = block.label
        rows.append(
            {
                "trace_id": trace_id,
                "tick": tick,
                "rendered": rendered,
                "question": label.question if label else None,
                "answer": label.answer if label else None,
                "probability": label.probability if label else None,
                "tags": list(block.tags),
                "score": draft.score,
                "exception": draft.exception,
                "executed_by": None if draft.executed is None else steps[draft.executed],
                "candidate_id": _candidate_id(conn, draft, steps),
                **{name: getattr(block, name) for name in AS_THEY_ARE},
            }
        )
    if rows:
        conn.execute(sa.insert(BLOCKS), rows)
    return size


AS_THEY_ARE = (
    "index", "subagent", "type", "body", "timestamp", "time_remaining", "block_size", "bm25_query", "title",
    "tick_start", "working_directory", "compiles", "ran",
)  # fmt: skip


def _candidate_id(conn: sa.Connection, draft: Append, steps: dict[int, int]) -> int | None:
    if draft.candidate is None:
        return None
    ordinal, position = draft.candidate
    query = sa.select(CANDIDATES.c.id).where(
        CANDIDATES.c.step_id == steps[ordinal], CANDIDATES.c.position == position
    )
    return int(conn.execute(query).scalar_one())


def give(conn: sa.Connection, trace_id: int, reward: Reward) -> None:
    """Write to a tick's blocks what it gave them."""
    for index in reward.shares.keys() | reward.preferences.keys():
        conn.execute(
            sa.update(BLOCKS)
            .where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index == index)
            .values(reward=reward.shares.get(index), preference=reward.preferences.get(index))
        )


def texts(conn: sa.Connection, trace_id: int, first: int, end: int) -> list[str]:
    """Rendered blocks [first, end) of a trace."""
    query = (
        sa.select(BLOCKS.c.rendered)
        .where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first, BLOCKS.c.index < end)
        .order_by(BLOCKS.c.index)
    )
    return list(conn.execute(query).scalars())


def messages(conn: sa.Connection, trace_id: int, first: int, end: int) -> Sequence[Any]:
    """Rows (index, type, text, token_ids) of the blocks [first, end) of a trace.

    Of a message that the model wrote, `text` and `token_ids` are those that it sampled (None where they are not
    kept); of others, the body.
    """
    query = (
        sa.select(
            BLOCKS.c.index,
            BLOCKS.c.type,
            sa.func.coalesce(CANDIDATES.c.text, BLOCKS.c.body).label("text"),
            CANDIDATES.c.token_ids,
        )
        .outerjoin(CANDIDATES, (CANDIDATES.c.id == BLOCKS.c.candidate_id) & (BLOCKS.c.type == BlockType.ASSISTANT))
        .where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first, BLOCKS.c.index < end)
        .order_by(BLOCKS.c.index)
    )
    return conn.execute(query).all()


def recalled(conn: sa.Connection, hits: Sequence[Hit]) -> list[tuple[BlockType, str]]:
    """Type and text of what was retrieved, in the order of `hits`.

    Other traces' blocks that have been dropped since, because their tick was started over, are left out.
    """
    if not hits:
        return []
    ids = [hit.id for hit in hits if not hit.example]
    query = sa.select(BLOCKS.c.id, BLOCKS.c.type, BLOCKS.c.rendered).where(BLOCKS.c.id.in_(ids))
    found = {row.id: (BlockType(row.type), str(row.rendered)) for row in conn.execute(query)}
    seeded = examples.texts(conn, [hit.id for hit in hits if hit.example])
    texts = (seeded.get(hit.id) if hit.example else found.get(hit.id) for hit in hits)
    return [text for text in texts if text is not None]


def briefs(conn: sa.Connection, trace_id: int, first: int, until: Any = None) -> Sequence[Any]:
    """Rows (index, type, body) from index `first` on, recorded before `until`: what an environment knows."""
    query = (
        sa.select(BLOCKS.c.index, BLOCKS.c.type, BLOCKS.c.body)
        .where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first)
        .order_by(BLOCKS.c.index)
    )
    return conn.execute(query if until is None else query.where(BLOCKS.c.created_at < until)).all()


def drop_from(conn: sa.Connection, trace_id: int, first: int) -> tuple[int, int]:
    """Remove the blocks of a tick that starts over, and every segment of the trace's index that holds one of them.

    The corpus index keeps them, but looks up which of its blocks there are before it answers. Returns what is
    left: bytes, and blocks made of candidates.
    """
    conn.execute(sa.delete(BLOCKS).where(BLOCKS.c.trace_id == trace_id, BLOCKS.c.index >= first))
    dropped = (
        conn.execute(
            sa.delete(SEGMENTS)
            .where(SEGMENTS.c.trace_id == trace_id, SEGMENTS.c.end > first)
            .returning(SEGMENTS.c.number)
        )
        .scalars()
        .all()
    )
    if dropped:
        conn.execute(
            sa.delete(POSTINGS).where(POSTINGS.c.trace_id == trace_id, POSTINGS.c.segment >= min(dropped))
        )
    size = sa.func.coalesce(sa.func.sum(sa.func.octet_length(BLOCKS.c.rendered)), 0)
    left = sa.select(size, sa.func.count(BLOCKS.c.candidate_id)).where(BLOCKS.c.trace_id == trace_id)
    size_left, written = conn.execute(left).one()
    return int(size_left), int(written)
