"""What formats of prompts and completions share: where one ends and the other begins, and columns about both."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.format import Key, column
from weavegen.exports.read_prompts import ModelPrompt

BATCH = 128
"""Keys looked up at a time."""
GONE = "the block has gone: its tick was started over meanwhile"
UNKNOWN = "what the model read is not recorded"

PROMPT = column(
    "prompt", pa.string(), "What the model read, to the letter: template, context, instruction, header, beginning."
)
EXACT = column(
    "exact_prompt",
    pa.bool_(),
    "Whether `prompt` is to the letter; if not, a block in it was shortened to fit the model's length, in tokens.",
)
PLACE = [
    column("trace_id", pa.int64(), "The trace: `weavegen show ID`."),
    column("index", pa.int32(), "Index of the block in the trace."),
    column("type", pa.string(), "Type of the block: orientation, action, ..."),
    column("job", pa.string(), "Name of the job."),
    column("model", pa.string(), "The model that wrote it; null: its job was begun by an older version."),
    column("bootstrap", pa.string(), "File name of the bootstrap."),
    column("tick_reward", pa.float64(), "The tick's reward, 0 to 0.5; null while it runs."),
]
"""Columns that say where a row comes from."""


def batches(keys: Iterator[Key]) -> Iterator[list[Key]]:
    """Keys in lists of at most BATCH."""
    while batch := list(islice(keys, BATCH)):
        yield batch


def values(row: sa.RowMapping, columns: Iterable[pa.Field]) -> dict[str, Any]:
    """Of a view's row, what has the names of these columns."""
    return {one.name: row[one.name] for one in columns}


def parted(prompt: ModelPrompt, body: str) -> tuple[str, str]:
    """A prompt and the rest of a body: the body's fixed beginning was the model's to read, not to write."""
    if body.startswith(prompt.prefix):
        return prompt.text + prompt.prefix, body[len(prompt.prefix) :]
    return prompt.text, body


def sampled(prompt: ModelPrompt, text: str, finish_reason: str) -> str:
    """A completion as it was sampled after `prompt.text + prompt.prefix`. One that was cut off has no end."""
    text = text.removeprefix(prompt.prefix)
    if finish_reason != "stop":
        return text
    return (text.rstrip("\n") if prompt.messages is None else text) + prompt.end
