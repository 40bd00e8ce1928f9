"""`sft`, `kto`, `stepwise` and `verifier`: a text that was written after a prompt, and what is known about it.

`sft` has the block that was kept, for supervised fine-tuning; `kto` a completion, and whether it is wanted; `stepwise`
a tick's blocks as steps, each right or wrong, for process reward models, and again with a last step that was tried and
not chosen; `verifier` a question about a block, and the answer, which was drawn or is known.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import (
    EXACT,
    PLACE,
    PROMPT,
    Record,
    completion,
    first_of,
    found_by,
    prompt_rows,
    split_body,
)
from weavegen.exports.format import Key, Row, RowFormat, column
from weavegen.exports.read_prompts import END, ModelPrompt

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

LABELS = re.compile(r"^#q: .*\n", re.MULTILINE)
"""Lines of a footer with a label. No line of a body begins like this (render.normalise_body)."""
ABOUT_TICK = [
    column("tick", pa.int32(), "Number of the tick."),
    column("candidate_id", pa.int64(), "The candidate that was tried, not chosen, and is the last step; null: none."),
    *(field for field in PLACE if field.name not in ("index", "type")),
]
STEPS = [
    column(
        "completions",
        pa.list_(pa.string()),
        "The steps. Text between two steps in the trace, such as an error, begins the second step.",
    ),
    column("labels", pa.list_(pa.bool_()), "Whether each step is right: it ran, or led to a block that ran."),
    column("types", pa.list_(pa.string()), "Type of each step's block."),
    column("indexes", pa.list_(pa.int32()), "Index of each step's block."),
]

CONTEXT = column("context", pa.string(), "The prompt that the block was written after, and the block's body.")
ANSWER = [
    column("question", pa.string(), "The question about the block."),
    column("label", pa.bool_(), "The answer."),
    column("predicted", pa.float64(), "The model's probability of yes; null: the model was not asked."),
    column("source", pa.string(), "drawn: by the evaluator's probability; the others are known from execution."),
]


def sft(record: Record, prompt: ModelPrompt) -> Row:
    text, rest = split_body(prompt, record["body"])
    return {"prompt": text, "completion": rest + prompt.end}


def kto(record: Record, prompt: ModelPrompt) -> Row:
    return {"prompt": prompt.text + prompt.prefix, "completion": completion(prompt, record)}


def verifier(record: Record, prompt: ModelPrompt) -> Row:
    return {"context": f"{prompt.text}{record['body']}\n"}


def ticks(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The ticks, each with its blocks from the first step on. The prompt is that of the first step."""
    # A release of an earlier version has keys without `ending`.
    keys = {(key[1], (*key, -key[1])[2]): key for key in batch}
    parameters = {"trace": trace, "ticks": [tick for tick, _ in keys], "endings": [ending for _, ending in keys]}
    blocks: dict[Key, list[Any]] = {place: [] for place in keys}
    for row in conn.execute(sql.load("exports/stepwise-blocks"), parameters):
        if row.label is not None or blocks[row.tick, row.ending]:
            blocks[row.tick, row.ending].append(row)
    found = conn.execute(sql.load("exports/stepwise-ticks"), parameters).mappings()
    rows = {(row["tick"], row["ending"]): row for row in found}
    whole = {place: steps for place, steps in blocks.items() if steps and place in rows}
    return {keys[place]: {**rows[place], "blocks": own, "step_id": own[0].step_id} for place, own in whole.items()}


def stepwise(tick: Record, prompt: ModelPrompt) -> Row:
    first, *others = tick["blocks"]
    text, rest = split_body(prompt, first.body)
    completions, steps, before = [rest + END], [first], ""
    for block in others:
        # The labels in the footers are what is to be learned, so the text must not contain them.
        before += "\n" + LABELS.sub("", block.rendered).removesuffix("\n")
        if block.label is not None:
            completions.append(before)
            steps.append(block)
            before = ""
    return {
        "prompt": text,
        "completions": completions,
        "labels": [block.label for block in steps],
        "types": [block.type for block in steps],
        "indexes": [block.index for block in steps],
    }


SFT_KEY = ("trace_id", "index", "block_id")
SFT = RowFormat(
    name="sft",
    about="Prompt and completion: blocks that were kept, are valid and did not fail.",
    view="sft_examples",
    key=SFT_KEY,
    takes=frozenset({"student"}),
    schema=pa.schema([PROMPT, REST, *ABOUT_BLOCK, EXACT]),
    rows=prompt_rows(found_by("sft", SFT_KEY), sft, ABOUT_BLOCK),
)
KTO_KEY = ("trace_id", "index", "candidate_id")
KTO = RowFormat(
    name="kto",
    about="Prompt, completion, label: candidates that are wanted or not, by their outcome or by their value.",
    view="kto_examples",
    key=KTO_KEY,
    takes=frozenset({"per_block", "student"}),
    narrow=first_of("rank"),  # of each label: the candidate whose label is the most certain
    schema=pa.schema([PROMPT, COMPLETION, *WANTED, *PLACE, EXACT]),
    rows=prompt_rows(found_by("kto", KTO_KEY), kto, [*WANTED, *PLACE]),
)
STEPWISE = RowFormat(
    name="stepwise",
    about="Prompt, completions, labels: a tick's blocks as steps that were right or wrong, for process rewards.",
    view="stepwise_examples",
    key=("trace_id", "tick", "ending"),
    schema=pa.schema([PROMPT, *STEPS, *ABOUT_TICK, EXACT]),
    rows=prompt_rows(ticks, stepwise, ABOUT_TICK),
)
VERIFIER_KEY = ("trace_id", "index", "block_id", "source_id", "label_id")
VERIFIER = RowFormat(
    name="verifier",
    about="Question, context, label and predicted probability: drawn labels and known ones.",
    view="verifier_labels",
    key=VERIFIER_KEY,
    schema=pa.schema([CONTEXT, *ANSWER, *PLACE, EXACT]),
    rows=prompt_rows(found_by("verifier", VERIFIER_KEY), verifier, [*ANSWER, *PLACE]),
)
