"""`sft`: a prompt as the model read it, and the block that was kept, for supervised fine-tuning."""

from collections.abc import Iterator

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, PROMPT, UNKNOWN, batches, parted, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader

ROWS = "select * from sft_examples where trace_id = :trace and block_id = any(cast(:ids as bigint[]))"
ABOUT = [
    *PLACE,
    column("ran", pa.bool_(), "Whether it ran without errors; null: it was not executed, or calls a subagent."),
    column("score", pa.float64(), "The evaluator's log odds, without penalties; null: never scored."),
    column(
        "reward", pa.float64(), "Its part of the tick's reward; null: none is due to its type, or the tick runs."
    ),
    column("preference", pa.float64(), "Its correction in preference data; null: nothing."),
    column("was_rewritten", pa.bool_(), "Whether it was cut to its legal structure after it was sampled."),
    EXACT,
]
SCHEMA = pa.schema(
    [
        PROMPT,
        column(
            "completion",
            pa.string(),
            "The rest of the block's body, and what stands behind it, at which sampling stops.",
        ),
        *ABOUT,
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        found = {
            row["block_id"]: row
            for row in source.conn.execute(
                sa.text(ROWS), {"trace": trace, "ids": [block for _, _, block in batch]}
            ).mappings()
        }
        reader.know([row["step_id"] for row in found.values()])
        for _, _, block in batch:
            if (row := found.get(block)) is None:
                source.leave_out(GONE)
            elif (prompt := reader.prompt(row["step_id"])) is None:
                source.leave_out(UNKNOWN)
            else:
                read, rest = parted(prompt, row["body"])
                yield values(row, ABOUT) | {
                    "prompt": read,
                    "completion": rest + prompt.end,
                    "exact_prompt": prompt.exact,
                }


FORMAT = RowFormat(
    name="sft",
    about="Prompt and completion: blocks that were kept, are legal and did not fail, after what the model read.",
    view="sft_examples",
    key=("trace_id", "index", "block_id"),
    schema=SCHEMA,
    rows=rows,
)
