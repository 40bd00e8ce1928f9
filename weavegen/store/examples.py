"""Examples in Postgres: hand-written blocks that retrieval may return."""

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.trace.blocks import BlockType


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An example, as it stands in a file."""

    description: str
    question: str
    score: float
    """Log odds of yes."""
    body: str


def load(conn: Connection, examples: Iterable[tuple[BlockType, Example]]) -> int:
    """Store the examples that are new. Returns how many were new."""
    rows: list[dict[str, Any]] = [
        {"type": type, "sha256": hashlib.sha256(f"{type}\n{example.body}".encode()).hexdigest()}
        | msgspec.structs.asdict(example)
        for type, example in examples
    ]
    return sql.run(conn, "store/load_examples", examples=rows).rowcount


def texts(conn: Connection, ids: Iterable[int]) -> dict[int, tuple[BlockType, str]]:
    """Type and text of examples by id, rendered like blocks."""
    rendered = {}
    for row in sql.run(conn, "store/examples", ids=ids):
        percent = 100 / (1 + math.exp(-row.score))
        text = f"#startblock type: {row.type}\n# {row.description}\n{row.body}\n"
        text += f"#q: {row.question} Yes. ({percent:.3f}%)\n#endblock\n\n"
        rendered[row.id] = (BlockType(row.type), text)
    return rendered
