"""`dpo` and `grpo`: candidates that were sampled after one prompt, compared by their values.

`dpo` has two completions, of which one is better; `grpo` all samples, with what a reward function needs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, completion, first_of, prompt_rows
from weavegen.exports.format import Key, Options, Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

MIN_MARGIN = 1.0
"""Default of --min-margin, in log odds: the better text is then at least e times as likely a yes."""
PAIR = [
    column("chosen", pa.string(), "The better completion, as it was sampled."),
    column("rejected", pa.string(), "The worse completion."),
    column("kind", pa.string(), "candidates: two of one block; correction: a failed attempt and the next, which ran."),
    column("outcome_differs", pa.bool_(), "Whether the worse one failed or is not legal Python."),
    column("margin", pa.float64(), "chosen_value minus rejected_value; null in a correction."),
    column("chosen_value", pa.float64(), "Log odds minus penalties, corrected by the outcome; null in a correction."),
    column("rejected_value", pa.float64(), "The value of the worse completion."),
]
# TRL passes every column to reward functions by name, and reserves names of its own: prompts, completions.
SAMPLES = [
    column("question", pa.string(), "What the evaluator is asked about a sample."),
    column("prefix", pa.string(), "The fixed beginning of the body, at the end of the prompt: part of every text."),
    column("block_size", pa.int32(), "Tokens that the model was given for the block."),
    column("samples", pa.list_(pa.string()), "Completions that were sampled after the prompt, in order."),
    column("sample_values", pa.list_(pa.float64()), "Log odds minus penalties of each, see candidate_values."),
    column("sample_scores", pa.list_(pa.float64()), "Log odds of each; null: never scored."),
    column("sample_penalties", pa.list_(pa.float64()), "What linting subtracted from each."),
    column("kept", pa.int32(), "Position of the sample that became the block, from 0."),
    column("ran", pa.bool_(), "Whether the block ran without errors; null: it was not executed."),
]


def near_ties(options: Options) -> tuple[str, str]:
    """Pairs whose texts differ little in value and not in outcome teach noise."""
    least = MIN_MARGIN if options.min_margin is None else options.min_margin
    reason = f"the values differ by less than {least:g}, and the outcomes do not differ (--min-margin)"
    return f"not outcome_differs and margin < {least!r}", reason


def pairs(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The rejected candidates, each with its chosen one. The prompt is that of the rejected candidate."""
    ids = [candidate for _, _, *pair in batch for candidate in pair]
    rows = conn.execute(sql.load("exports/dpo"), {"trace": trace, "ids": ids}).mappings()
    candidates = {row["candidate_id"]: row for row in rows}
    return {
        key: {**candidates[key[3]], "chosen": candidates[key[2]]}
        for key in batch
        if key[2] in candidates and key[3] in candidates
    }


def pair(rejected: Record, prompt: ModelPrompt) -> Row:
    chosen = rejected["chosen"]
    same_block = chosen["index"] == rejected["index"]
    return {
        "prompt": prompt.text + prompt.prefix,
        "chosen": completion(prompt, chosen),
        "rejected": completion(prompt, rejected),
        "kind": "candidates" if same_block else "correction",
        "outcome_differs": not same_block or rejected["failed"] or not rejected["compiles"],
        "margin": chosen["value"] - rejected["value"] if same_block else None,
        "chosen_value": chosen["value"] if same_block else None,
        "rejected_value": rejected["value"] if same_block else None,
    }


def groups(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The kept candidates, each with its block and with all samples of the block."""
    block_rows = conn.execute(
        sql.load("exports/grpo-blocks"), {"trace": trace, "ids": [block for _, _, block in batch]}
    )
    blocks = {row.block_id: row for row in block_rows}
    samples: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
    indexes = {"trace": trace, "indexes": [index for _, index, _ in batch]}
    for row in conn.execute(sql.load("exports/grpo-candidates"), indexes).mappings():
        samples[row["index"], row["header"]].append(row)
    kept = {row["block_id"]: row for sampled in samples.values() for row in sampled if row["block_id"]}
    return {
        key: {**kept[key[2]], "block": blocks[key[2]], "samples": samples[key[1], blocks[key[2]].header]}
        for key in batch
        if key[2] in blocks and key[2] in kept
    }


def group(kept: Record, prompt: ModelPrompt) -> Row:
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


DPO = RowFormat(
    name="dpo",
    about="Prompt, chosen, rejected: candidates of a block by value, failed attempts and the next that ran.",
    view="preference_pairs",
    key=("trace_id", "index", "chosen_id", "rejected_id"),
    takes=frozenset({"per_block", "min_margin", "student"}),
    narrow=first_of("pair"),
    weak=near_ties,
    schema=pa.schema([PROMPT, *PAIR, *PLACE, EXACT]),
    rows=prompt_rows(pairs, pair),
)
GRPO = RowFormat(
    name="grpo",
    about="Prompts to sample after, with what a reward function needs, and recorded samples with their values.",
    view="grpo_prompts",
    key=("trace_id", "index", "block_id"),
    schema=pa.schema([PROMPT, *SAMPLES, *PLACE, EXACT]),
    rows=prompt_rows(groups, group),
)
