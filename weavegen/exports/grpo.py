"""`grpo`: prompts to sample after, with what a reward function needs, and recorded samples with their values."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, completion, prompt_rows
from weavegen.exports.format import Key, Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

# TRL passes every column to reward functions by name, and reserves names of its own: prompts, completions.
SAMPLES = [
    column("question", pa.string(), "What the evaluator is asked about a sample."),
    column(
        "prefix", pa.string(), "The fixed beginning of the body, at the end of the prompt: part of every text."
    ),
    column("block_size", pa.int32(), "Tokens that the model was given for the block."),
    column("samples", pa.list_(pa.string()), "Completions that were sampled after the prompt, in order."),
    column("sample_values", pa.list_(pa.float64()), "Log odds minus penalties of each, see candidate_values."),
    column("sample_scores", pa.list_(pa.float64()), "Log odds of each; null: never scored."),
    column("sample_penalties", pa.list_(pa.float64()), "What linting subtracted from each."),
    column("kept", pa.int32(), "Position of the sample that became the block, from 0."),
    column("ran", pa.bool_(), "Whether the block ran without errors; null: it was not executed."),
]


def find(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The kept candidates, each with its block and with all samples of the block."""
    block_rows = conn.execute(
        sql.load("exports/grpo-blocks"), {"trace": trace, "ids": [block for _, _, block in batch]}
    )
    blocks = {row.block_id: row for row in block_rows}
    samples: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
    indexes = {"trace": trace, "indexes": [index for _, index, _ in batch]}
    for row in conn.execute(sql.load("exports/grpo-candidates"), indexes).mappings():
        samples[row["index"], row["header"]].append(row)
    kept = {row["block_id"]: row for group in samples.values() for row in group if row["block_id"]}
    return {
        key: {**kept[key[2]], "block": blocks[key[2]], "samples": samples[key[1], blocks[key[2]].header]}
        for key in batch
        if key[2] in blocks and key[2] in kept
    }


def make(kept: Record, prompt: ModelPrompt) -> Row:
    block, samples = kept["block"], kept["samples"]
    return {
        "prompt": prompt.text + prompt.prefix,
        "question": block.question,
        "prefix": prompt.prefix,
        "block_size": block.block_size,
        "samples": [completion(prompt, sample) for sample in samples],
        "sample_values": [sample["value"] for sample in samples],
        "sample_scores": [sample["score"] for sample in samples],
        "sample_penalties": [sample["penalty"] for sample in samples],
        "kept": next(n for n, sample in enumerate(samples) if sample["block_id"] == kept["block_id"]),
        "ran": block.ran,
    }


FORMAT = RowFormat(
    name="grpo",
    about="Prompts to sample after, with what a reward function needs, and recorded samples with their values.",
    view="grpo_prompts",
    key=("trace_id", "index", "block_id"),
    schema=pa.schema([PROMPT, *SAMPLES, *PLACE, EXACT]),
    rows=prompt_rows(find, make),
)
