"""The blocks that retrieval finds, and their columns in the corpus index."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weavegen import sql
from weavegen.database import Connection
from weavegen.search.bm25 import word_counts
from weavegen.trace.blocks import BlockType

RETRIEVABLE = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
"""Types of blocks that are indexed: what the model wrote, and errors. The column `types` holds positions in this
tuple."""
OTHER_TYPES = 100
"""Numbers of all other types begin here. Examples may have these types."""

COLUMNS: dict[str, np.dtype[Any]] = {
    "ids": np.dtype("<i8"),
    "traces": np.dtype("<i8"),
    "jobs": np.dtype("<i8"),
    "indexes": np.dtype("<i4"),
    "goods": np.dtype("<f8"),
    "recorded": np.dtype("<f8"),
    "types": np.dtype("u1"),
    "lengths": np.dtype("<u4"),
}
"""The array columns of `corpus_segments` with their element types."""
Columns = dict[str, NDArray[Any]]
"""Arrays by these names, with an element for each text."""


class Document(NamedTuple):
    """A text of the corpus index: its values in the order of COLUMNS, and its words."""

    id: int
    trace: int
    job: int
    place: int
    """Index in the trace."""
    good: float
    """Raw score. NaN if the block has none, is not legal Python, or failed."""
    recorded: float
    """Seconds since the epoch."""
    type: int
    """See `type_number`."""
    length: int
    """In words."""
    counts: Counter[str]
    """How often each word occurs."""


def type_number(type: str) -> int:
    """The number of a block type in the column `types`."""
    block_type = BlockType(type)
    if block_type in RETRIEVABLE:
        return RETRIEVABLE.index(block_type)
    return OTHER_TYPES + list(BlockType).index(block_type)


def read(conn: Connection, ids: Sequence[int], table: Literal["blocks", "examples"] = "blocks") -> list[Document]:
    """The texts with these ids, in the order of their ids. Those that do not exist any more are left out."""
    documents = []
    for *values, type, body in sql.run(conn, f"search/{table}", ids=list(ids)):
        counts = word_counts(body)
        documents.append(Document._make((*values, type_number(type), counts.total(), counts)))
    return documents


def columns(documents: Sequence[Document]) -> Columns:
    """All columns of some documents."""
    return {
        name: np.array([document[field] for document in documents], dtype)
        for field, (name, dtype) in enumerate(COLUMNS.items())
    }
