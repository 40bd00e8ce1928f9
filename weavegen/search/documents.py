"""What the corpus index knows of a block besides its words, and how blocks are read to be indexed."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import sqlalchemy as sa
from numpy.typing import NDArray

from weavegen.search.bm25 import counted
from weavegen.trace.blocks import BlockType

RECALLABLE = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
"""Blocks worth recalling: what the model wrote, and what went wrong. An index holds their places in this order."""
OTHERS = 100
"""From here on types have numbers that no index holds: those of examples."""

COLUMNS: dict[str, np.dtype[Any]] = {
    "ids": np.dtype("<i8"),
    "traces": np.dtype("<i8"),
    "jobs": np.dtype("<i8"),
    "indexes": np.dtype("<i4"),
    "lengths": np.dtype("<u4"),
    "types": np.dtype("u1"),
    "goods": np.dtype("<f8"),
    "recorded": np.dtype("<f8"),
}
"""The columns of `corpus_segments` that are arrays, and of what."""
Columns = dict[str, NDArray[Any]]
"""Arrays by these names, with a place for each text."""


@dataclass(frozen=True)
class Document:
    """A text that can be found."""

    id: int
    trace: int
    job: int
    index: int
    type: int
    """See `number`."""
    good: float
    """Raw score; NaN where the block has none, is not legal Python, or failed."""
    recorded: float
    """Seconds since the epoch."""
    counts: Counter[str]
    """How often each word stands in it."""


def number(type: str) -> int:
    """Of a block type, as the column `types` has it."""
    known = BlockType(type)
    return RECALLABLE.index(known) if known in RECALLABLE else OTHERS + list(BlockType).index(known)


READ = sa.text(
    """
    select b.id, b.trace_id, t.job_id, b.index as place, b.type, b.body,
      case when b.compiles and b.ran is not false then b.score end as good,
      extract(epoch from b.created_at)::double precision as recorded
    from blocks b join traces t on t.id = b.trace_id where b.id = any(:ids) order by b.id
    """
)


def read(conn: sa.Connection, ids: Sequence[int]) -> list[Document]:
    """These blocks, by id; those that were dropped are left out."""
    return [
        Document(
            row.id,
            row.trace_id,
            row.job_id,
            row.place,
            number(row.type),
            math.nan if row.good is None else row.good,
            row.recorded,
            counted(row.body),
        )
        for row in conn.execute(READ, {"ids": list(ids)})
    ]


def columns(documents: Sequence[Document]) -> Columns:
    """All columns of some texts."""
    values: dict[str, list[Any]] = {
        "ids": [one.id for one in documents],
        "traces": [one.trace for one in documents],
        "jobs": [one.job for one in documents],
        "indexes": [one.index for one in documents],
        "lengths": [one.counts.total() for one in documents],
        "types": [one.type for one in documents],
        "goods": [one.good for one in documents],
        "recorded": [one.recorded for one in documents],
    }
    return {name: np.array(values[name], dtype) for name, dtype in COLUMNS.items()}


def driver_of(conn: sa.Connection) -> psycopg.Connection[Any]:
    """The connection below SQLAlchemy's, for what goes in binary."""
    driver = conn.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
