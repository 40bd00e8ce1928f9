"""`sft`: a prompt and the block that was kept, for supervised fine-tuning."""

import pyarrow as pa

from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, found_by, prompt_rows, split_body
from weavegen.exports.format import Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

KEY = ("trace_id", "index", "block_id")
ABOUT = [
    *PLACE,
    column("ran", pa.bool_(), "Whether it ran without errors; null: it was not executed, or calls a subagent."),
    column("score", pa.float64(), "The evaluator's log odds without penalties; null: never scored."),
    column("reward", pa.float64(), "Its share of the tick's reward; null: its type gets none, or the tick runs."),
    column("preference", pa.float64(), "The correction of its score in preference data; null: none."),
    column("was_rewritten", pa.bool_(), "Whether it was cut to its legal structure after it was sampled."),
]
COMPLETION = column("completion", pa.string(), "The rest of the block's body, and the text that stops sampling.")


def make(record: Record, prompt: ModelPrompt) -> Row:
    text, rest = split_body(prompt, record["body"])
    return {"prompt": text, "completion": rest + prompt.end}


FORMAT = RowFormat(
    name="sft",
    about="Prompt and completion: blocks that were kept, are valid and did not fail.",
    view="sft_examples",
    key=KEY,
    schema=pa.schema([PROMPT, COMPLETION, *ABOUT, EXACT]),
    rows=prompt_rows(found_by("sft", KEY), make, ABOUT),
)
