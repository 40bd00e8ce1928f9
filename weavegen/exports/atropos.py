"""`atropos`: groups of scored token sequences, as Atropos's trainers take them from its server's queue.

A group is what one step sampled after one prompt: the server packs groups into batches, and trainers compare the
scores within a group. The form is that of `ScoredData` in atroposlib/api/server.py (NousResearch/atropos): masks
have -100 and logprobs 1.0 where the model only read.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import GONE, UNKNOWN, batches, sampled
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader, numbers, reals

READ, READ_LOGPROB = -100, 1.0
"""Mask and logprob of a token that the model read and did not write."""
NOT_RECORDED = "token ids of its candidates or prompt are not recorded: enqueue with --set tokens=all"
ALONE = "fewer than two candidates of its step have a value: there is nothing to compare"

CANDIDATES = """
select v.trace_id, v.step_id, v.candidate_id, v.position, v.index, v.type, v.round, v.tick, v.text,
  v.finish_reason, v.value, v.block_id, v.ran, v.tick_reward, v.bootstrap, v.job, s.request,
  c.token_ids::text as token_ids, c.logprobs::text as logprobs
from candidate_values v join candidates c on c.id = v.candidate_id join steps s on s.id = v.step_id
where v.trace_id = :trace and v.step_id = any(cast(:steps as bigint[])) and v.depth is null
order by v.step_id, v.position
"""
SAMPLING = ("n", "temperature", "top_k", "repetition_penalty", "max_tokens", "seed")
ORIGIN = ("trace_id", "index", "step_id", "type", "round", "tick", "tick_reward", "bootstrap", "job")
TEXTS = ("type", "bootstrap", "job")
SEQUENCES = pa.list_(pa.list_(pa.int64()))
REALS = pa.list_(pa.list_(pa.float64()))
SCHEMA = pa.schema(
    [
        column("tokens", SEQUENCES, "Of each candidate the ids of the prompt and of what was sampled after it."),
        column("masks", SEQUENCES, "The same, with -100 for each token of the prompt."),
        column("scores", pa.list_(pa.float64()), "Value of each candidate, see the view candidate_values."),
        column("advantages", REALS, "Null: the trainer makes them of the scores of a group."),
        column("ref_logprobs", REALS, "Null: no reference model was asked."),
        column(
            "inference_logprobs",
            REALS,
            "Logprobs of the sampled tokens, as the server told them; 1.0 for each token of the prompt.",
        ),
        column(
            "messages",
            pa.list_(pa.list_(pa.struct({"role": pa.string(), "content": pa.string()}))),
            "Of each candidate prompt and completion as text: what the user said, what the assistant answered.",
        ),
        column(
            "generation_params",
            pa.struct({name: pa.float64() for name in SAMPLING}),
            "How they were sampled, as the server was asked.",
        ),
        column(
            "overrides",
            pa.list_(pa.struct({"candidate_id": pa.int64(), "position": pa.int32(), "kept": pa.bool_()})),
            "Of each candidate: its row in `candidates`, its place in the round, whether it became the block.",
        ),
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
    for batch in batches(keys):
        reader.know([step for _, _, step in batch])
        for _, _, step in batch:
            # One group at a time: 64 candidates of 30,000 tokens of context are enough in memory.
            values = {"trace": trace, "steps": [step]}
            found = source.conn.execute(sa.text(CANDIDATES), values).all()
            if not found:
                source.leave_out(GONE)
            elif (group := grouped(source, reader, step, found)) is not None:
                yield group


def grouped(source: Source, reader: PromptReader, step: int, found: Any) -> Row | None:
    """The candidates of a step as a group; None where that can't be."""
    prompt = reader.prompt(step)
    if prompt is None:
        source.leave_out(UNKNOWN)
        return None
    valued = [row for row in found if row.value is not None]
    if len(valued) < 2:
        source.leave_out(ALONE)
        return None
    read = reader.token_ids(step)
    if read is None or any(row.token_ids is None or row.logprobs is None for row in valued):
        source.leave_out(NOT_RECORDED)
        return None
    if len(valued) < len(found):
        source.note("a candidate that was never scored is left out of its group")
    columns: dict[str, list[Any]] = defaultdict(list)
    for row in valued:
        written, logprobs = numbers(row.token_ids), reals(row.logprobs)
        columns["tokens"].append(read + written)
        columns["masks"].append([READ] * len(read) + written)
        columns["inference_logprobs"].append([READ_LOGPROB] * len(read) + logprobs)
        columns["scores"].append(row.value)
        own = sampled(prompt, row.text, row.finish_reason)
        columns["messages"].append(
            [{"role": "user", "content": prompt.text + prompt.prefix}, {"role": "assistant", "content": own}]
        )
        columns["overrides"].append(
            {"candidate_id": row.candidate_id, "position": row.position, "kept": row.block_id is not None}
        )
    first = found[0]._mapping
    return columns | {
        "advantages": None,
        "ref_logprobs": None,
        "generation_params": {name: first["request"].get(name) for name in SAMPLING},
        "group_overrides": {name: first[name] for name in ORIGIN},
        "env_id": None,
    }


FORMAT = RowFormat(
    name="atropos",
    about="Groups of scored token sequences with masks and logprobs: Atropos's ScoredData, an object a line.",
    view="sampled_groups",
    key=("trace_id", "index", "step_id"),
    schema=SCHEMA,
    rows=rows,
    layout="jsonl",
)
