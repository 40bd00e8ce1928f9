"""`verifier`: a question about a block, what stands before it, and the answer, drawn or known."""

from collections.abc import Iterator

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, UNKNOWN, batches, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader

ROWS = """
select v.*, k.reward as tick_reward from verifier_labels v
left join ticks k on k.trace_id = v.trace_id and k.number = v.tick
where v.trace_id = :trace and v.block_id = any(cast(:ids as bigint[]))
"""
SCHEMA = pa.schema(
    [
        column("context", pa.string(), "What the model read before the block, and the block's body."),
        column("question", pa.string(), "The question about the block."),
        column("label", pa.bool_(), "The answer."),
        column(
            "predicted", pa.float64(), "Probability of yes by the model that wrote it; null: it was not asked."
        ),
        column(
            "source",
            pa.string(),
            "drawn: by the evaluator's own probability; ran, asserted: known from what happened.",
        ),
        *PLACE,
        EXACT,
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        wanted = {"trace": trace, "ids": [key[2] for key in batch]}
        found = {
            (row["source_id"], row["label_id"]): row
            for row in source.conn.execute(sa.text(ROWS), wanted).mappings()
        }
        reader.know([row["step_id"] for row in found.values()])
        for _, _, _, kind, label in batch:
            if (row := found.get((kind, label))) is None:
                source.leave_out(GONE)
            elif (prompt := reader.prompt(row["step_id"])) is None:
                source.leave_out(UNKNOWN)
            else:
                yield values(row, PLACE) | {
                    "context": f"{prompt.text}{row['body']}\n",
                    "question": row["question"],
                    "label": row["label"],
                    "predicted": row["predicted"],
                    "source": row["source"],
                    "exact_prompt": prompt.exact,
                }


FORMAT = RowFormat(
    name="verifier",
    about="Question, context, label and predicted probability: labels that were drawn, and those that are known.",
    view="verifier_labels",
    key=("trace_id", "index", "block_id", "source_id", "label_id"),
    schema=SCHEMA,
    rows=rows,
)
