"""`kto`: a prompt, one completion, and whether it is wanted."""

import pyarrow as pa

from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, completion, found_by, prompt_rows, values
from weavegen.exports.format import Options, Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

KEY = ("trace_id", "index", "candidate_id")
LABEL = [
    column("label", pa.bool_(), "Whether it is wanted."),
    column("because", pa.string(), "ran, failed (when executed), illegal (not valid Python), valued."),
    column("value", pa.float64(), "Log odds minus penalties, corrected by its outcome; null: never scored."),
]
COMPLETION = column("completion", pa.string(), "The text as it was sampled.")


def clearest(options: Options) -> str:
    """By default one candidate of each label per block: the one whose label is the most certain."""
    return f"rank <= {options.per_block or 1:d}"


def make(record: Record, prompt: ModelPrompt) -> Row:
    text = prompt.text + prompt.prefix
    return {"prompt": text, "completion": completion(prompt, record)} | values(record, LABEL)


FORMAT = RowFormat(
    name="kto",
    about="Prompt, completion, label: candidates that are wanted or not, by their outcome or by their value.",
    view="kto_examples",
    key=KEY,
    takes=frozenset({"per_block"}),
    narrow=clearest,
    schema=pa.schema([PROMPT, COMPLETION, *LABEL, *PLACE, EXACT]),
    rows=prompt_rows(found_by("kto", KEY), make),
)
