"""`py` and `json`: a file per trace, as `weavegen show` and `weavegen show --json` print it."""

from collections.abc import Iterator

import msgspec

from weavegen.exports.format import FileFormat, Source
from weavegen.exports.text import blocks
from weavegen.trace.blocks import block_from_columns


def python(source: Source, trace: int) -> Iterator[str]:
    """The trace as a Python file."""
    return (row.rendered for row in blocks(source.conn, "text-blocks", trace))


def json(source: Source, trace: int) -> Iterator[str]:
    """The list of the trace's blocks, one per line."""
    separator = "[\n"
    for row in blocks(source.conn, "trace-blocks", trace):
        # Parsing the text would give the same block, but ten times as slowly.
        yield separator + msgspec.json.encode(block_from_columns(row._mapping)).decode()
        separator = ",\n"
    yield "\n]\n"


PY = FileFormat(
    name="py",
    about="A Python file per trace, as `weavegen show` prints it.",
    view="text_examples",
    key=("trace_id",),
    suffix="py",
    text=python,
)
JSON = FileFormat(
    name="json",
    about="A JSON file per trace: the list of its blocks, as `weavegen show --json` prints it.",
    view="text_examples",
    key=("trace_id",),
    suffix="json",
    text=json,
)
