"""`text`: whole traces, or pieces of them cut between blocks, for language modelling."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import BOOTSTRAP, JOB, MODEL, TRACE_ID, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column

PAGE = 256
"""Blocks fetched at a time."""
BYTES_PER_TOKEN = 4.0
"""Where a trace's tokens were never counted: the usual estimate for English and code."""
TRACE_GONE = "the trace is gone"

TRACE = sa.text("select * from text_examples where trace_id = :trace")
ABOUT = [
    JOB,
    MODEL,
    BOOTSTRAP,
    column("trace_status", pa.string(), "ended, failed, cancelled, or running: then it is not complete."),
    column("result", pa.string(), "`result` of what the agent returned: for a game won, drawn or lost."),
    column("mean_tick_reward", pa.float64(), "Mean reward of its ticks; null: no tick has a reward."),
]
PIECE = [
    column("piece", pa.int32(), "Number of the piece within the trace, from 0."),
    column("first_block", pa.int32(), "Index of its first block."),
    column("blocks", pa.int32(), "Number of its blocks."),
    column("tokens", pa.int64(), "Number of its tokens, as the model server counted them."),
    column(
        "tokens_counted", pa.bool_(), "False: some blocks were not counted, so `tokens` is an estimate by bytes."
    ),
]
TEXT = column("text", pa.string(), "The trace, or a piece of it, as `weavegen show` prints it.")


@dataclass
class Piece:
    """Consecutive blocks of a trace."""

    first: int
    texts: list[str] = field(default_factory=list)
    bytes: int = 0
    tokens: int = 0
    counted: bool = True


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    """The whole trace, or pieces of at most `context` tokens or `context_bytes` bytes.

    A longer block is a piece of its own.
    """
    about = source.conn.execute(TRACE, {"trace": trace}).mappings().one_or_none()
    if about is None:
        source.leave_out(TRACE_GONE)
        return
    for number, piece in enumerate(pieces(source, trace)):
        if not piece.counted:
            source.note("tokens of some blocks were not counted: `tokens` is an estimate by bytes")
        yield values(about, [TRACE_ID, *ABOUT]) | {
            "text": "".join(piece.texts),
            "piece": number,
            "first_block": piece.first,
            "blocks": len(piece.texts),
            "tokens": piece.tokens,
            "tokens_counted": piece.counted,
        }


def pieces(source: Source, trace: int) -> Iterator[Piece]:
    """A trace's blocks, grouped up to the limits that the options set."""
    options = source.options
    max_tokens = options.context or float("inf")
    max_bytes = options.context_bytes or float("inf")
    ratio = (
        source.conn.execute(sql.load("exports/text-bytes-per-token"), {"trace": trace}).scalar_one()
        or BYTES_PER_TOKEN
    )
    piece: Piece | None = None
    for row in blocks(source.conn, "text-blocks", trace):
        size = len(row.rendered.encode())
        tokens = row.tokens if row.tokens is not None else max(1, round(size / ratio))
        if piece is not None and (piece.tokens + tokens > max_tokens or piece.bytes + size > max_bytes):
            yield piece
            piece = None
        piece = piece or Piece(row.index)
        piece.texts.append(row.rendered)
        piece.bytes += size
        piece.tokens += tokens
        piece.counted &= row.tokens is not None
    if piece is not None:
        yield piece


def blocks(conn: sa.Connection, name: str, trace: int, **parameters: Any) -> Iterator[Any]:
    """Rows of sql/NAME.sql, PAGE at a time. The query gives at most :limit rows from index :first on."""
    parameters |= {"trace": trace, "first": 0, "limit": PAGE}
    while page := conn.execute(sql.load(f"exports/{name}"), parameters).all():
        yield from page
        parameters["first"] = page[-1]._mapping["index"] + 1


FORMAT = RowFormat(
    name="text",
    about="Whole traces, or with --context pieces cut between blocks: language modelling (TRL SFT's `text`).",
    view="text_examples",
    key=("trace_id",),
    takes=frozenset({"context", "context_bytes"}),
    schema=pa.schema([TEXT, TRACE_ID, *PIECE, *ABOUT]),
    rows=rows,
)
