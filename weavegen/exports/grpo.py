"""`grpo`: prompts to sample after, with what a reward function needs, and how the recorded samples did."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, PROMPT, UNKNOWN, batches, sampled, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader

BLOCKS = """
select b.id as block_id, b.question, b.block_size, b.ran, s.request -> 'prompt' ->> 'header' as header
from blocks b join candidates c on c.id = b.candidate_id join steps s on s.id = c.step_id
where b.trace_id = :trace and b.id = any(cast(:ids as bigint[]))
"""
CANDIDATES = """
select v.*, s.request -> 'prompt' ->> 'header' as header from candidate_values v join steps s on s.id = v.step_id
where v.trace_id = :trace and v.index = any(cast(:indexes as bigint[]))
  and (v.depth is null or v.finish_reason = 'stop') order by v.step_id, v.position
"""
# TRL hands every column to reward functions by its name, and has names of its own: prompts, completions.
SCHEMA = pa.schema(
    [
        PROMPT,
        column("question", pa.string(), "What the evaluator is asked about a sample."),
        column(
            "prefix", pa.string(), "The fixed beginning of the body, at the end of the prompt: part of every text."
        ),
        column("block_size", pa.int32(), "Tokens that the model was given for the block."),
        column("samples", pa.list_(pa.string()), "Completions that were sampled after it, in order."),
        column("sample_values", pa.list_(pa.float64()), "Log odds less penalties of each, see candidate_values."),
        column("sample_scores", pa.list_(pa.float64()), "Log odds of each; null: never scored."),
        column("sample_penalties", pa.list_(pa.float64()), "What linting subtracted from each."),
        column("kept", pa.int32(), "Position of the sample that became the block, from 0."),
        column("ran", pa.bool_(), "Whether that ran without errors; null: it was not executed."),
        *PLACE,
        EXACT,
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        blocks = {
            row.block_id: row
            for row in source.conn.execute(sa.text(BLOCKS), {"trace": trace, "ids": [key[2] for key in batch]})
        }
        groups: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
        wanted = {"trace": trace, "indexes": [key[1] for key in batch]}
        for row in source.conn.execute(sa.text(CANDIDATES), wanted).mappings():
            groups[row["index"], row["header"]].append(row)
        kept = {row["block_id"]: row for group in groups.values() for row in group if row["block_id"]}
        reader.know([row["step_id"] for row in kept.values()])
        for _, index, block_id in batch:
            block = blocks.get(block_id)
            if block is None or block_id not in kept:
                source.leave_out(GONE)
                continue
            if (prompt := reader.prompt(kept[block_id]["step_id"])) is None:
                source.leave_out(UNKNOWN)
                continue
            group = groups[index, block.header]
            yield values(kept[block_id], PLACE) | {
                "prompt": prompt.text + prompt.prefix,
                "question": block.question,
                "prefix": prompt.prefix,
                "block_size": block.block_size,
                "samples": [sampled(prompt, row["text"], row["finish_reason"]) for row in group],
                "sample_values": [row["value"] for row in group],
                "sample_scores": [row["score"] for row in group],
                "sample_penalties": [row["penalty"] for row in group],
                "kept": next(number for number, row in enumerate(group) if row["block_id"] == block_id),
                "ran": block.ran,
                "exact_prompt": prompt.exact,
            }


FORMAT = RowFormat(
    name="grpo",
    about="Prompts to sample after, with what a reward function needs, and recorded samples with their values.",
    view="grpo_prompts",
    key=("trace_id", "index", "block_id"),
    schema=SCHEMA,
    rows=rows,
)
