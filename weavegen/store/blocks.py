"""Blocks in Postgres: written once, with their rendered text. Only their reward is written later."""

import hashlib
from collections.abc import Iterable, Sequence

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel.steps import Append, Hit, Reward
from weavegen.store import examples
from weavegen.store.jobs import content_id
from weavegen.trace.blocks import PLAIN_COLUMNS, Block, BlockType
from weavegen.trace.render import render_block


def append(
    conn: Connection, trace_id: int, tick: int, drafts: Iterable[tuple[Append, Block]], steps: dict[int, int]
) -> int:
    """Record blocks. `steps` maps the tick's ordinals to step ids. Returns the bytes of the rendered blocks."""
    rows = []
    for draft, block in drafts:
        candidate_id = toolset_id = None
        if draft.tools is not None:
            digest = hashlib.sha256(draft.tools.encode()).hexdigest()
            toolset_id = content_id(conn, "toolsets", digest, tools=draft.tools)
        if draft.candidate is not None:
            ordinal, position = draft.candidate
            candidate_id = sql.run(conn, "store/candidate_id", step=steps[ordinal], position=position).scalar_one()
        rows.append(
            {
                "trace": trace_id,
                "tick": tick,
                "rendered": render_block(block),
                "tags": list(block.tags),
                "score": draft.score,
                "exception": draft.exception,
                "toolset": toolset_id,
                "executed_by": None if draft.executed is None else steps[draft.executed],
                "candidate": candidate_id,
                **{name: getattr(block, name) for name in ("type", *PLAIN_COLUMNS)},
                **{name: getattr(block.label, name, None) for name in ("question", "answer", "probability")},
            }
        )
    sql.run_each(conn, "store/insert_block", rows)
    return sum(len(row["rendered"].encode()) for row in rows)


def save_rewards(conn: Connection, trace_id: int, tick: int, reward: Reward) -> None:
    """Write a tick's reward to the tick, and the shares and the corrections of preferences to its blocks."""
    marks = {"reward": reward.reward, "protected": reward.protected, "not_evaluated": reward.not_evaluated}
    sql.run(conn, "store/reward_tick", trace=trace_id, tick=tick, **marks)
    rows = [
        {"trace": trace_id, "index": index}
        | {"share": reward.shares.get(index), "preference": reward.preferences.get(index)}
        for index in sorted(reward.shares.keys() | reward.preferences.keys())
    ]
    sql.run_each(conn, "store/reward_block", rows)


def texts(conn: Connection, trace_id: int, first: int, end: int) -> list[str]:
    """Rendered blocks [first, end) of a trace."""
    return list(sql.run(conn, "store/rendered_blocks", trace=trace_id, first=first, end=end).scalars())


def retrieved_texts(conn: Connection, hits: Sequence[Hit]) -> list[tuple[BlockType, str]]:
    """Type and text of retrieved blocks and examples, in the order of `hits`, without dropped blocks."""
    if not hits:
        return []
    ids = [hit.id for hit in hits if not hit.example]
    blocks = {row.id: (BlockType(row.type), str(row.rendered)) for row in sql.run(conn, "store/blocks", ids=ids)}
    seeds = examples.texts(conn, [hit.id for hit in hits if hit.example])
    texts = (seeds.get(hit.id) if hit.example else blocks.get(hit.id) for hit in hits)
    return [text for text in texts if text is not None]


def drop_from(conn: Connection, trace_id: int, first: int) -> tuple[int, int]:
    """Delete the blocks from index `first` on, and every segment of the trace's index that holds one of them.

    The corpus index keeps them: it checks which of its blocks exist before it answers.

    Returns what is left: bytes, and the number of blocks made of candidates.
    """
    sql.run(conn, "store/drop_blocks", trace=trace_id, first=first)
    sql.run(conn, "store/drop_segments", trace=trace_id, first=first)
    size, written = sql.run(conn, "store/blocks_left", trace=trace_id).one()
    return size, written
