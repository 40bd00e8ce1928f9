"""`py` and `json`: a file for each trace, as `weavegen show` and `weavegen show --json` print it."""

from collections.abc import Iterator

import msgspec
import sqlalchemy as sa

from weavegen.exports.format import FileFormat, Source
from weavegen.exports.text import blocks
from weavegen.trace.blocks import Block, BlockType, Label

AS_THEY_ARE = [name for name in Block.__struct_fields__ if name not in ("type", "label", "tags")]
"""Fields of a block that are columns by the same name."""
COLUMNS = ", ".join(f'"{name}"' for name in [*AS_THEY_ARE, "type", "tags", "question", "answer", "probability"])
BLOCKS = f"""
select {COLUMNS} from blocks where trace_id = :trace and index >= :first and index < :end order by index
"""


def python(source: Source, trace: int) -> Iterator[str]:
    """The trace: one Python file."""
    return (row.rendered for row in blocks(source.conn, trace))


def json(source: Source, trace: int) -> Iterator[str]:
    """A list of its blocks, one a line."""
    mark = "[\n"
    for row in blocks(source.conn, trace, BLOCKS):
        yield mark + msgspec.json.encode(block_of(row._mapping)).decode()
        mark = ",\n"
    yield "\n]\n"


def block_of(row: sa.RowMapping) -> Block:
    """The block that a row's columns say; parsing its text gives the same, ten times as slowly."""
    label = None if row["answer"] is None else Label(row["question"], row["answer"], row["probability"])
    values = {name: row[name] for name in AS_THEY_ARE}
    return Block(type=BlockType(row["type"]), label=label, tags=tuple(row["tags"]), **values)


PY = FileFormat(
    name="py",
    about="A Python file for each trace, as `weavegen show` prints it.",
    view="text_examples",
    key=("trace_id",),
    suffix="py",
    text=python,
)
JSON = FileFormat(
    name="json",
    about="A JSON file for each trace: the list of its blocks, as `weavegen show --json` prints it.",
    view="text_examples",
    key=("trace_id",),
    suffix="json",
    text=json,
)
