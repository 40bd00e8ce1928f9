"""`verifier`: a question about a block, the context before it, and the answer, which was drawn or is known."""

import pyarrow as pa

from weavegen.exports.completions import EXACT, PLACE, Record, found_by, prompt_rows, values
from weavegen.exports.format import Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

KEY = ("trace_id", "index", "block_id", "source_id", "label_id")
CONTEXT = column("context", pa.string(), "The prompt that the block was written after, and the block's body.")
LABEL = [
    column("question", pa.string(), "The question about the block."),
    column("label", pa.bool_(), "The answer."),
    column("predicted", pa.float64(), "The model's probability of yes; null: the model was not asked."),
    column("source", pa.string(), "drawn: by the evaluator's probability; ran, asserted: known from execution."),
]


def make(record: Record, prompt: ModelPrompt) -> Row:
    return {"context": f"{prompt.text}{record['body']}\n"} | values(record, LABEL)


FORMAT = RowFormat(
    name="verifier",
    about="Question, context, label and predicted probability: drawn labels and known ones.",
    view="verifier_labels",
    key=KEY,
    schema=pa.schema([CONTEXT, *LABEL, *PLACE, EXACT]),
    rows=prompt_rows(found_by("verifier", KEY), make),
)
