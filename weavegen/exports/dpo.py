"""`dpo`: a prompt and two completions, of which one is better, for preference optimisation."""

from collections.abc import Iterator

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, PROMPT, UNKNOWN, batches, sampled, values
from weavegen.exports.format import Key, Options, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader

CANDIDATES = """
select * from candidate_values where trace_id = :trace and candidate_id = any(cast(:ids as bigint[]))
"""
SCHEMA = pa.schema(
    [
        PROMPT,
        column("chosen", pa.string(), "The better completion, as it was sampled."),
        column("rejected", pa.string(), "The worse one."),
        column(
            "kind",
            pa.string(),
            "candidates: two of one block; correction: an attempt that failed and the next one, which ran.",
        ),
        column("margin", pa.float64(), "chosen_value less rejected_value; null in a correction."),
        column(
            "chosen_value",
            pa.float64(),
            "Log odds less penalties, and for what became the block the correction by what came of it.",
        ),
        column("rejected_value", pa.float64(), "The same of the worse one."),
        *PLACE,
        EXACT,
    ]
)


def first_ones(options: Options) -> str:
    """One pair of a block, if nothing else is asked for: prompts are long, and the first pair says the most."""
    return f"pair <= {options.per_block or 1:d}"


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        ids = [one for _, _, *pair in batch for one in pair]
        found = {
            row["candidate_id"]: row
            for row in source.conn.execute(sa.text(CANDIDATES), {"trace": trace, "ids": ids}).mappings()
        }
        reader.know([found[one]["step_id"] for _, _, _, one in batch if one in found])
        for _, _, better, worse in batch:
            if better not in found or worse not in found:
                source.leave_out(GONE)
                continue
            chosen, rejected = found[better], found[worse]
            if (prompt := reader.prompt(rejected["step_id"])) is None:
                source.leave_out(UNKNOWN)
                continue
            same = chosen["index"] == rejected["index"]
            yield values(rejected, PLACE) | {
                "prompt": prompt.text + prompt.prefix,
                "chosen": sampled(prompt, chosen["text"], chosen["finish_reason"]),
                "rejected": sampled(prompt, rejected["text"], rejected["finish_reason"]),
                "kind": "candidates" if same else "correction",
                "margin": chosen["value"] - rejected["value"] if same else None,
                "chosen_value": chosen["value"] if same else None,
                "rejected_value": rejected["value"] if same else None,
                "exact_prompt": prompt.exact,
            }


FORMAT = RowFormat(
    name="dpo",
    about="Prompt, chosen, rejected: candidates of a block by their value, failed attempts with what ran next.",
    view="preference_pairs",
    key=("trace_id", "index", "chosen_id", "rejected_id"),
    takes=frozenset({"per_block"}),
    narrow=first_ones,
    schema=SCHEMA,
    rows=rows,
)
