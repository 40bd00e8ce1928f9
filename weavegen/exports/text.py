"""`text`: whole traces as they stand, or pieces of them cut between blocks, for language modelling."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.format import Key, Row, RowFormat, Source, column

PAGE = 256
"""Blocks fetched at a time."""
BYTES_PER_TOKEN = 4.0
"""Of a trace whose tokens were never counted: the usual rule of thumb for English and code."""

TRACE = "select * from text_examples where trace_id = :trace"
BLOCKS = """
select b.index, b.rendered, array_length(k.token_ids, 1) as tokens
from blocks b left join block_tokens k on k.trace_id = b.trace_id and k.index = b.index
where b.trace_id = :trace and b.index >= :first and b.index < :end order by b.index
"""
COUNTED = """
select sum(octet_length(b.rendered))::float / nullif(sum(array_length(k.token_ids, 1)), 0)
from block_tokens k join blocks b on b.trace_id = k.trace_id and b.index = k.index where k.trace_id = :trace
"""

SCHEMA = pa.schema(
    [
        column("text", pa.string(), "The trace, or a piece of it, as `weavegen show` prints it."),
        column("trace_id", pa.int64(), "The trace: `weavegen show ID`."),
        column("piece", pa.int32(), "Number of the piece within the trace, from 0."),
        column("first_block", pa.int32(), "Index of its first block."),
        column("blocks", pa.int32(), "Blocks in it."),
        column("tokens", pa.int64(), "Tokens in it, as the model's server counted them."),
        column(
            "tokens_counted",
            pa.bool_(),
            "Whether every block's tokens were counted; if not, `tokens` is an estimate by bytes.",
        ),
        column("job", pa.string(), "Name of the job."),
        column("model", pa.string(), "The model that wrote it; null: its job was begun by an older version."),
        column("bootstrap", pa.string(), "File name of the bootstrap."),
        column("trace_status", pa.string(), "ended, failed, cancelled, or running: then it is not whole."),
        column("result", pa.string(), "`result` of what the agent returned: of a game won, drawn or lost."),
        column("mean_tick_reward", pa.float64(), "Mean reward of its ticks; null: none is rewarded."),
    ]
)
OF_TRACE = ("trace_id", "job", "model", "bootstrap", "trace_status", "result", "mean_tick_reward")


@dataclass
class Piece:
    """Blocks of a trace that stand together."""

    first: int
    texts: list[str] = field(default_factory=list)
    bytes: int = 0
    tokens: int = 0
    counted: bool = True


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    """The trace whole, or in pieces of at most `context` tokens or `context_bytes`.

    A block that is longer by itself is a piece by itself.
    """
    about = source.conn.execute(sa.text(TRACE), {"trace": trace}).mappings().one_or_none()
    if about is None:
        source.leave_out("the trace has gone")
        return
    values = {name: about[name] for name in OF_TRACE}
    for number, piece in enumerate(pieces(source, trace)):
        if not piece.counted:
            source.note("tokens of some blocks were not counted: `tokens` is an estimate by bytes")
        yield values | {
            "text": "".join(piece.texts),
            "piece": number,
            "first_block": piece.first,
            "blocks": len(piece.texts),
            "tokens": piece.tokens,
            "tokens_counted": piece.counted,
        }


def pieces(source: Source, trace: int) -> Iterator[Piece]:
    """A trace's blocks, gathered up to the bounds that the options set."""
    options = source.options
    ratio = source.conn.execute(sa.text(COUNTED), {"trace": trace}).scalar_one() or BYTES_PER_TOKEN
    piece: Piece | None = None
    for row in blocks(source.conn, trace):
        size = len(row.rendered.encode())
        tokens = row.tokens if row.tokens is not None else max(1, round(size / ratio))
        if piece is not None and (
            (options.context is not None and piece.tokens + tokens > options.context)
            or (options.context_bytes is not None and piece.bytes + size > options.context_bytes)
        ):
            yield piece
            piece = None
        piece = piece or Piece(row.index)
        piece.texts.append(row.rendered)
        piece.bytes += size
        piece.tokens += tokens
        piece.counted &= row.tokens is not None
    if piece is not None:
        yield piece


def blocks(conn: sa.Connection, trace: int, query: str = BLOCKS) -> Iterator[Any]:
    """Rows of a trace's blocks in order, (index, rendered, tokens) by default, a page at a time.

    `query` gives those with an index in [:first, :end) of :trace.
    """
    first = 0
    while page := conn.execute(sa.text(query), {"trace": trace, "first": first, "end": first + PAGE}).all():
        yield from page
        first += PAGE


FORMAT = RowFormat(
    name="text",
    about="Whole traces, or with --context pieces cut between blocks: language modelling (TRL SFT's `text`).",
    view="text_examples",
    key=("trace_id",),
    takes=frozenset({"context", "context_bytes"}),
    schema=SCHEMA,
    rows=rows,
)
