"""What the model read, in Postgres."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.pool.tokens import Tokens
from weavegen.store import models as m
from weavegen.store.steps import Claimed

PROMPTS, BLOCK_TOKENS = map(m.table, (m.ModelRead, m.BlockTokens))


def save(
    conn: sa.Connection,
    held: Claimed,
    *,
    server: str,
    first_block: int,
    tokens: int | None,
    cached: int | None,
    cut: dict[str, Any] | None,
    asking: Tokens | None,
    blocks: Mapping[int, Tokens],
    length: int | None = None,
) -> None:
    """Record what a step's model read; `blocks`: tokens of blocks that may not have been recorded yet."""
    conn.execute(
        sa.insert(PROMPTS).values(
            step_id=held.id,
            trace_id=held.trace_id,
            server=server,
            first_block=first_block,
            tokens=tokens,
            cached=cached,
            cut=cut,
            length=length,
            token_ids=None if asking is None else asking.ids,
        )
    )
    if blocks:
        rows = [
            {"trace_id": held.trace_id, "index": index, "token_ids": tokens.ids}
            for index, tokens in blocks.items()
        ]
        conn.execute(insert(BLOCK_TOKENS).on_conflict_do_nothing(), rows)
