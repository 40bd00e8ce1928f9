"""What formats of prompts and completions share: their columns, and the loop that looks prompts up."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.format import Key, Options, Row, RowMaker, Source, column
from weavegen.exports.read_prompts import ModelPrompt, PromptReader

BATCH = 128
"""Keys that are looked up together."""
GONE = "the block is gone: its tick was restarted meanwhile"
UNKNOWN = "the prompt was not recorded"

PROMPT = column(
    "prompt",
    pa.string(),
    "The exact text that the model read: template, context, instruction, header, fixed beginning of the body.",
)
EXACT = column(
    "exact_prompt",
    pa.bool_(),
    "Whether the prompt is exact. False: a block in it was shortened, in tokens, to fit the model's length.",
)
TRACE_ID = column("trace_id", pa.int64(), "The trace: `weavegen show ID`.")
JOB = column("job", pa.string(), "Name of the job.")
MODEL = column("model", pa.string(), "The model that wrote it; null: an older version began the job.")
BOOTSTRAP = column("bootstrap", pa.string(), "File name of the bootstrap.")
PLACE = [
    TRACE_ID,
    column("index", pa.int32(), "Index of the block in the trace."),
    column("type", pa.string(), "Type of the block: orientation, action, ..."),
    JOB,
    MODEL,
    BOOTSTRAP,
    column("tick_reward", pa.float64(), "The tick's reward, 0 to 0.5; null while the tick runs."),
    column("tick_protected", pa.bool_(), "Whether that reward counts protected evaluations only."),
]
"""Columns that say where a row comes from."""

Record = Mapping[Any, Any]
"""What a row is made of. `step_id` is the step whose prompt belongs to it."""
Find = Callable[[sa.Connection, int, Sequence[Key]], Mapping[Key, Record]]
"""Looks up the records of some keys of a trace. Rows that are gone are left out."""
Make = Callable[[Record, ModelPrompt], Row]


def prompt_rows(find: Find, make: Make, columns: list[pa.Field] = PLACE) -> RowMaker:
    """The row maker of a format whose rows belong to a prompt.

    `make` turns a record and its prompt into a row. `columns` are copied from the record.
    """

    def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
        reader = PromptReader(source.conn, trace, source.template)
        for batch in batches(keys):
            records = find(source.conn, trace, batch)
            reader.load([record["step_id"] for record in records.values()])
            for key in batch:
                if (record := records.get(key)) is None:
                    source.left_out[GONE] += 1
                elif (prompt := reader.prompt(record["step_id"])) is None:
                    source.left_out[UNKNOWN] += 1
                else:
                    yield values(record, columns) | make(record, prompt) | {"exact_prompt": prompt.exact}

    return rows


def found_by(name: str, key: tuple[str, ...]) -> Find:
    """Looks records up with sql/NAME.sql, which takes the third numbers of the keys as :ids.

    `key`: the columns of the query that identify a record.
    """

    def find(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
        ids = [third for _, _, third, *_ in batch]
        parameters = {"trace": trace, "ids": ids, "first": batch[0][1], "last": batch[-1][1]}
        rows = conn.execute(sql.load(f"exports/{name}"), parameters).mappings()
        return {tuple(row[field] for field in key): row for row in rows}

    return find


def first_of(column: str) -> Callable[[Options], str]:
    """By default one row per block, the first by this column: prompts are long, and it is the most informative."""
    return lambda options: f"{column} <= {options.per_block or 1:d}"


def batches(keys: Iterator[Key]) -> Iterator[list[Key]]:
    """Keys in lists of at most BATCH."""
    while batch := list(islice(keys, BATCH)):
        yield batch


def values(record: Record, columns: Iterable[pa.Field]) -> Row:
    """The values of a record for these columns."""
    return {field.name: record[field.name] for field in columns}


def split_body(prompt: ModelPrompt, body: str) -> tuple[str, str]:
    """A prompt and the rest of a body. The model read the body's fixed beginning as part of the prompt."""
    if body.startswith(prompt.prefix):
        return prompt.text + prompt.prefix, body[len(prompt.prefix) :]
    return prompt.text, body


def completion(prompt: ModelPrompt, candidate: Record) -> str:
    """A candidate as it was sampled after `prompt.text + prompt.prefix`. A truncated one has no end."""
    text = str(candidate["text"]).removeprefix(prompt.prefix)
    if candidate["finish_reason"] != "stop":
        return text
    return (text.rstrip("\n") if prompt.messages is None else text) + prompt.end
