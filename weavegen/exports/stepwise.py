"""`stepwise`: a tick's blocks as steps, each right or wrong, for process reward models."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, prompt_rows, split_body
from weavegen.exports.format import Key, Row, RowFormat, column
from weavegen.exports.read_prompts import END, ModelPrompt

LABELS = re.compile(r"^#q: .*\n", re.MULTILINE)
"""Lines of a footer with a label. No line of a body begins like this (render.normalise_body)."""
ABOUT = [
    column("tick", pa.int32(), "Number of the tick."),
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


def find(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The ticks, each with its blocks from the first step on. The prompt is that of the first step."""
    ticks = {"trace": trace, "ticks": [tick for _, tick in batch]}
    blocks: dict[int, list[Any]] = {tick: [] for _, tick in batch}
    for row in conn.execute(sql.load("exports/stepwise-blocks"), ticks):
        if row.label is not None or blocks[row.tick]:
            blocks[row.tick].append(row)
    return {
        (trace, row["tick"]): {**row, "blocks": blocks[row["tick"]], "step_id": blocks[row["tick"]][0].step_id}
        for row in conn.execute(sql.load("exports/stepwise-ticks"), ticks).mappings()
        if blocks[row["tick"]]
    }


def make(tick: Record, prompt: ModelPrompt) -> Row:
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


FORMAT = RowFormat(
    name="stepwise",
    about="Prompt, completions, labels: a tick's blocks as steps that were right or wrong, for process rewards.",
    view="stepwise_examples",
    key=("trace_id", "tick"),
    schema=pa.schema([PROMPT, *STEPS, *ABOUT, EXACT]),
    rows=prompt_rows(find, make, ABOUT),
)
