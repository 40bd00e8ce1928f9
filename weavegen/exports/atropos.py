"""`atropos`: groups of scored token sequences, as Atropos's trainers take them from its server's queue.

A group is what one step sampled after one prompt; trainers compare the scores within a group. The form is that of
`ScoredData` in atroposlib/api/server.py (NousResearch/atropos, archived).
"""

from collections.abc import Iterator
from typing import Any

from weavegen import sql
from weavegen.exports.completions import BATCH, GONE, UNKNOWN, completion
from weavegen.exports.format import DECLARED, Key, Row, RowFormat, Source, declared
from weavegen.exports.read_prompts import PromptReader, integers, reals
from weavegen.exports.trajectories import Tokens
from weavegen.store.releases import batches

NOT_RECORDED = "token ids of its candidates or prompt are not recorded: enqueue with --set tokens=all"
ALONE = "fewer than two candidates of its step have a value, so there is nothing to compare"
ORIGIN = tuple(DECLARED["atropos"]["own"]["group_overrides"][0])
"""Columns that say where a group comes from."""


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys, BATCH):
        reader.load([step for _, _, step in batch])
        for _, _, step in batch:
            # One group at a time, because 64 candidates with 30,000 tokens of context fill the memory.
            candidates = sql.run(source.conn, "exports/atropos", trace=trace, step=step).mappings()
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
    pieces = reader.token_pieces(step)
    if pieces is None or any(row["token_ids"] is None or row["logprobs"] is None for row in scored):
        return NOT_RECORDED
    if len(scored) < len(candidates):
        source.notes["a candidate that was never scored is left out of its group"] += 1
    read = [id for piece in pieces for id in piece.ids]
    sequences = [Tokens.of([(read, None), (integers(row["token_ids"]), reals(row["logprobs"]))]) for row in scored]
    texts = [completion(prompt, row["text"], row["finish_reason"]) for row in scored]
    user = {"role": "user", "content": prompt.text + prompt.prefix}
    return {
        "tokens": [sequence.tokens for sequence in sequences],
        "masks": [sequence.masks for sequence in sequences],
        "scores": [row["value"] for row in scored],
        "advantages": None,
        "ref_logprobs": None,
        "inference_logprobs": [sequence.logprobs for sequence in sequences],
        "messages": [[user, {"role": "assistant", "content": text}] for text in texts],
        "generation_params": scored[0]["sampling"],
        "overrides": [row["about"] for row in scored],
        "group_overrides": {name: scored[0][name] for name in ORIGIN},
        "env_id": None,
    }


FORMAT = RowFormat(rows=rows, layout="jsonl", **declared("atropos"))
