"""`dpo`: a prompt and two completions, of which one is better, for preference optimisation."""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import sqlalchemy as sa

from weavegen import sql
from weavegen.exports.completions import EXACT, PLACE, PROMPT, Record, completion, prompt_rows
from weavegen.exports.format import Key, Options, Row, RowFormat, column
from weavegen.exports.read_prompts import ModelPrompt

PAIR = [
    column("chosen", pa.string(), "The better completion, as it was sampled."),
    column("rejected", pa.string(), "The worse completion."),
    column(
        "kind", pa.string(), "candidates: two of one block; correction: a failed attempt and the next, which ran."
    ),
    column("margin", pa.float64(), "chosen_value minus rejected_value; null in a correction."),
    column(
        "chosen_value", pa.float64(), "Log odds minus penalties, corrected by the outcome; null in a correction."
    ),
    column("rejected_value", pa.float64(), "The value of the worse completion."),
]


def first_pairs(options: Options) -> str:
    """By default one pair per block: prompts are long, and the first pair is the most informative."""
    return f"pair <= {options.per_block or 1:d}"


def find(conn: sa.Connection, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The rejected candidates, each with its chosen one. The prompt is that of the rejected candidate."""
    ids = [candidate for _, _, *pair in batch for candidate in pair]
    rows = conn.execute(sql.load("exports/dpo"), {"trace": trace, "ids": ids}).mappings()
    candidates = {row["candidate_id"]: row for row in rows}
    return {
        key: {**candidates[key[3]], "chosen": candidates[key[2]]}
        for key in batch
        if key[2] in candidates and key[3] in candidates
    }


def make(rejected: Record, prompt: ModelPrompt) -> Row:
    chosen = rejected["chosen"]
    same_block = chosen["index"] == rejected["index"]
    return {
        "prompt": prompt.text + prompt.prefix,
        "chosen": completion(prompt, chosen),
        "rejected": completion(prompt, rejected),
        "kind": "candidates" if same_block else "correction",
        "margin": chosen["value"] - rejected["value"] if same_block else None,
        "chosen_value": chosen["value"] if same_block else None,
        "rejected_value": rejected["value"] if same_block else None,
    }


FORMAT = RowFormat(
    name="dpo",
    about="Prompt, chosen, rejected: candidates of a block by value, failed attempts and the next that ran.",
    view="preference_pairs",
    key=("trace_id", "index", "chosen_id", "rejected_id"),
    takes=frozenset({"per_block"}),
    narrow=first_pairs,
    schema=pa.schema([PROMPT, *PAIR, *PLACE, EXACT]),
    rows=prompt_rows(find, make),
)
