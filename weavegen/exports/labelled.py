"""`sft`, `kto` and `verifier`: a text that was written after a prompt, and what is known about it.

`sft` has the block that was kept, for supervised fine-tuning; `kto` a completion, and whether it is wanted; `verifier`
a question about a block, and the answer, which was drawn or is known. One query finds the rows of each.
"""

import pyarrow as pa

from weavegen.exports.completions import (
    EXACT,
    PLACE,
    PROMPT,
    Record,
    completion,
    found_by,
    prompt_rows,
    split_body,
    values,
)
from weavegen.exports.format import Options, Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

ABOUT_BLOCK = [
    *PLACE,
    column("ran", pa.bool_(), "Whether it ran without errors; null: it was not executed, or calls a subagent."),
    column("score", pa.float64(), "The evaluator's log odds without penalties; null: never scored."),
    column("reward", pa.float64(), "Its share of the tick's reward; null: its type gets none, or the tick runs."),
    column("preference", pa.float64(), "The correction of its score in preference data; null: none."),
    column("was_rewritten", pa.bool_(), "Whether it was cut to its legal structure after it was sampled."),
]
REST = column("completion", pa.string(), "The rest of the block's body, and the text that stops sampling.")

COMPLETION = column("completion", pa.string(), "The text as it was sampled.")
WANTED = [
    column("label", pa.bool_(), "Whether it is wanted."),
    column("because", pa.string(), "ran, failed (when executed), illegal (not valid Python), valued."),
    column("value", pa.float64(), "Log odds minus penalties, corrected by its outcome; null: never scored."),
]

CONTEXT = column("context", pa.string(), "The prompt that the block was written after, and the block's body.")
ANSWER = [
    column("question", pa.string(), "The question about the block."),
    column("label", pa.bool_(), "The answer."),
    column("predicted", pa.float64(), "The model's probability of yes; null: the model was not asked."),
    column("source", pa.string(), "drawn: by the evaluator's probability; ran, asserted: known from execution."),
]


def kept(record: Record, prompt: ModelPrompt) -> Row:
    text, rest = split_body(prompt, record["body"])
    return {"prompt": text, "completion": rest + prompt.end}


def wanted(record: Record, prompt: ModelPrompt) -> Row:
    text = prompt.text + prompt.prefix
    return {"prompt": text, "completion": completion(prompt, record)} | values(record, WANTED)


def answered(record: Record, prompt: ModelPrompt) -> Row:
    return {"context": f"{prompt.text}{record['body']}\n"} | values(record, ANSWER)


def clearest(options: Options) -> str:
    """By default one candidate of each label per block: the one whose label is the most certain."""
    return f"rank <= {options.per_block or 1:d}"


SFT_KEY = ("trace_id", "index", "block_id")
SFT = RowFormat(
    name="sft",
    about="Prompt and completion: blocks that were kept, are valid and did not fail.",
    view="sft_examples",
    key=SFT_KEY,
    schema=pa.schema([PROMPT, REST, *ABOUT_BLOCK, EXACT]),
    rows=prompt_rows(found_by("sft", SFT_KEY), kept, ABOUT_BLOCK),
)
KTO_KEY = ("trace_id", "index", "candidate_id")
KTO = RowFormat(
    name="kto",
    about="Prompt, completion, label: candidates that are wanted or not, by their outcome or by their value.",
    view="kto_examples",
    key=KTO_KEY,
    takes=frozenset({"per_block"}),
    narrow=clearest,
    schema=pa.schema([PROMPT, COMPLETION, *WANTED, *PLACE, EXACT]),
    rows=prompt_rows(found_by("kto", KTO_KEY), wanted),
)
VERIFIER_KEY = ("trace_id", "index", "block_id", "source_id", "label_id")
VERIFIER = RowFormat(
    name="verifier",
    about="Question, context, label and predicted probability: drawn labels and known ones.",
    view="verifier_labels",
    key=VERIFIER_KEY,
    schema=pa.schema([CONTEXT, *ANSWER, *PLACE, EXACT]),
    rows=prompt_rows(found_by("verifier", VERIFIER_KEY), answered),
)
