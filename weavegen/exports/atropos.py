"""`atropos`: groups of scored token sequences, as Atropos's trainers take them from its server's queue.

A group is what one step sampled after one prompt; trainers compare the scores within a group. The form is that of
`ScoredData` in atroposlib/api/server.py (NousResearch/atropos, archived).
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from weavegen import sql
from weavegen.exports.completions import BATCH, GONE, UNKNOWN, completion
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader, integers, reals
from weavegen.exports.trajectories import CHAT_TYPE, Tokens
from weavegen.store.releases import batches

NOT_RECORDED = "token ids of its candidates or prompt are not recorded: enqueue with --set tokens=all"
ALONE = "fewer than two candidates of its step have a value, so there is nothing to compare"

SAMPLING = ("n", "temperature", "top_k", "repetition_penalty", "max_tokens", "seed")
WHERE = ("trace_id", "index", "step_id", "type", "round", "tick")
ORIGIN = (*WHERE, "tick_reward", "tick_protected", "bootstrap", "job")
TEXTS = ("type", "bootstrap", "job")
IDS = pa.list_(pa.list_(pa.int64()))
REALS = pa.list_(pa.list_(pa.float64()))
CANDIDATE = pa.struct({"candidate_id": pa.int64(), "position": pa.int32(), "kept": pa.bool_()})
SCHEMA = pa.schema(
    [
        column("tokens", IDS, "For each candidate the ids of the prompt and of what was sampled after it."),
        column("masks", IDS, "The same, but -100 for each token of the prompt."),
        column("scores", pa.list_(pa.float64()), "Value of each candidate, see the view candidate_values."),
        column("advantages", REALS, "Null: the trainer computes them from the scores of a group."),
        column("ref_logprobs", REALS, "Null: there is no reference model."),
        column("inference_logprobs", REALS, "Logprobs of the sampled tokens; 1.0 for each token of the prompt."),
        column("messages", pa.list_(CHAT_TYPE), "For each candidate the prompt (user) and completion (assistant)."),
        column("generation_params", pa.struct({name: pa.float64() for name in SAMPLING}), "Sampling parameters."),
        column("overrides", pa.list_(CANDIDATE), "For each candidate its id, position, and whether it was kept."),
        column(
            "group_overrides",
            pa.struct({name: pa.string() if name in TEXTS else pa.float64() for name in ORIGIN}),
            "Where the group comes from; `index` and `type` are those of the block.",
        ),
        column("env_id", pa.int64(), "Null: no environment is registered."),
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys, BATCH):
        reader.load([step for _, _, step in batch])
        for _, _, step in batch:
            # One group at a time, because 64 candidates with 30,000 tokens of context fill the memory.
            candidates = sql.run(source.conn, "exports/atropos", trace=trace, step=step).mappings().all()
            group = make_group(source, reader, step, candidates)
            if isinstance(group, str):
                source.left_out[group] += 1
            else:
                yield group


def make_group(source: Source, reader: PromptReader, step: int, candidates: Any) -> Row | str:
    """The candidates of a step as a group, or the reason why it is left out."""
    if not candidates:
        return GONE
    if (prompt := reader.prompt(step)) is None:
        return UNKNOWN
    scored = [row for row in candidates if row["value"] is not None]
    if len(scored) < 2:
        return ALONE
    read = reader.token_ids(step)
    if read is None or any(row["token_ids"] is None or row["logprobs"] is None for row in scored):
        return NOT_RECORDED
    if len(scored) < len(candidates):
        source.notes["a candidate that was never scored is left out of its group"] += 1
    sequences = [Tokens() for _ in scored]
    for sequence, row in zip(sequences, scored, strict=True):
        sequence.read(read)
        sequence.sampled(integers(row["token_ids"]), reals(row["logprobs"]))
    user = {"role": "user", "content": prompt.text + prompt.prefix}
    return {
        "tokens": [sequence.tokens for sequence in sequences],
        "masks": [sequence.masks for sequence in sequences],
        "scores": [row["value"] for row in scored],
        "advantages": None,
        "ref_logprobs": None,
        "inference_logprobs": [sequence.logprobs for sequence in sequences],
        "messages": [[user, {"role": "assistant", "content": completion(prompt, row)}] for row in scored],
        "generation_params": {name: scored[0]["request"].get(name) for name in SAMPLING},
        "overrides": [
            {"candidate_id": row["candidate_id"], "position": row["position"], "kept": row["block_id"] is not None}
            for row in scored
        ],
        "group_overrides": {name: scored[0][name] for name in ORIGIN},
        "env_id": None,
    }


FORMAT = RowFormat(
    name="atropos",
    about="Groups of scored token sequences with masks and logprobs: Atropos's ScoredData, as JSON lines.",
    view="sampled_groups",
    key=("trace_id", "index", "step_id"),
    schema=SCHEMA,
    rows=rows,
    layout="jsonl",
)
