"""Whole traces: `text`, also in pieces cut between blocks, for language modelling; and files, `py` and `json`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.exports.completions import values
from weavegen.exports.format import TRACE_GONE, Key, Row, RowFormat, Source, declared, file_per_trace
from weavegen.trace.blocks import block_from_columns

PAGE = 256
"""Blocks fetched at a time."""
BYTES_PER_TOKEN = 4.0
"""Where a trace's tokens were never counted: the usual estimate for English and code."""


@dataclass
class Piece:
    """Consecutive blocks of a trace."""

    first: int
    texts: list[str] = field(default_factory=list)
    bytes: int = 0
    tokens: int = 0
    counted: bool = True


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    """The whole trace, or pieces up to `context` tokens or `context_bytes` bytes. A longer block is one by itself."""
    if (about := about_trace(source, "text_examples", trace)) is None:
        return
    for number, piece in enumerate(pieces(source, trace)):
        if not piece.counted:
            source.notes["tokens of some blocks were not counted: `tokens` is an estimate by bytes"] += 1
        place = {"piece": number, "first_block": piece.first, "blocks": len(piece.texts)}
        text = {"text": "".join(piece.texts), "tokens": piece.tokens, "tokens_counted": piece.counted}
        yield values(about, TEXTS.schema.names) | place | text


def about_trace(source: Source, view: str, trace: int) -> dict[str, Any] | None:
    """The row of a view with a row per trace; None if the trace is gone."""
    rows = source.conn.execute(sql.load("exports/about-trace", view=view), {"trace": trace}).mappings()
    if not rows:
        source.left_out[TRACE_GONE] += 1
    return next(iter(rows), None)


def pieces(source: Source, trace: int) -> Iterator[Piece]:
    """A trace's blocks, grouped up to the limits that the options set."""
    max_tokens = source.options.context or float("inf")
    max_bytes = source.options.context_bytes or float("inf")
    ratio = sql.run(source.conn, "exports/text-bytes-per-token", trace=trace).scalar_one() or BYTES_PER_TOKEN
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


def blocks(conn: Connection, name: str, trace: int, by: str = "index", **parameters: Any) -> Iterator[Any]:
    """Rows of sql/NAME.sql, PAGE at a time. The query gives at most :limit rows whose column `by` is :first or more."""
    parameters |= {"trace": trace, "first": 0, "limit": PAGE}
    while page := sql.run(conn, f"exports/{name}", **parameters).all():
        yield from page
        parameters["first"] = page[-1]._asdict()[by] + 1


def python(conn: Connection, trace: int) -> Iterator[str]:
    """The trace as a Python file, as `weavegen show` prints it."""
    return (row.rendered for row in blocks(conn, "text-blocks", trace))


def json(conn: Connection, trace: int) -> Iterator[str]:
    """The list of the trace's blocks, one per line, as `weavegen show --json` prints it."""
    separator = "[\n"
    for row in blocks(conn, "trace-blocks", trace):
        # Parsing the text would give the same block, but ten times as slowly.
        yield separator + msgspec.json.encode(block_from_columns(row._asdict())).decode()
        separator = ",\n"
    yield "[]\n" if separator == "[\n" else "\n]\n"


TEXTS = RowFormat(rows=rows, **declared("text"))
PY = file_per_trace("py", "py", lambda source, trace: python(source.conn, trace))
JSON = file_per_trace("json", "json", lambda source, trace: json(source.conn, trace))
