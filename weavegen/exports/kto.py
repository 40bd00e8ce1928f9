"""`kto`: a prompt, one completion, and whether it is wanted."""

from collections.abc import Iterator

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, PROMPT, UNKNOWN, batches, sampled, values
from weavegen.exports.format import Key, Options, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import PromptReader

# The view ranks the candidates of a block, for which it must see them all; here nothing but the rest is wanted.
ROWS = """
select v.*, v.ran is not null as executed from candidate_values v
where v.trace_id = :trace and v.candidate_id = any(cast(:ids as bigint[]))
"""
LABELS = """
select candidate_id, label, because from kto_examples
where trace_id = :trace and index between :first and :last and candidate_id = any(cast(:ids as bigint[]))
"""
SCHEMA = pa.schema(
    [
        PROMPT,
        column("completion", pa.string(), "The text as it was sampled."),
        column("label", pa.bool_(), "Whether it is wanted."),
        column("because", pa.string(), "ran, failed (when executed), illegal (no legal Python), valued."),
        column(
            "value", pa.float64(), "Log odds less penalties, corrected by what came of it; null: never scored."
        ),
        *PLACE,
        EXACT,
    ]
)


def clearest(options: Options) -> str:
    """One candidate of each label, if nothing else is asked for: the one that most is known of."""
    return f"rank <= {options.per_block or 1:d}"


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        wanted = {
            "trace": trace,
            "ids": [one for _, _, one in batch],
            "first": batch[0][1],
            "last": batch[-1][1],
        }
        found = {row["candidate_id"]: row for row in source.conn.execute(sa.text(ROWS), wanted).mappings()}
        labels = {row.candidate_id: row for row in source.conn.execute(sa.text(LABELS), wanted)}
        reader.know([row["step_id"] for row in found.values()])
        for _, _, one in batch:
            if one not in labels:
                source.leave_out(GONE)
            elif (prompt := reader.prompt(found[one]["step_id"])) is None:
                source.leave_out(UNKNOWN)
            else:
                row = found[one]
                yield values(row, PLACE) | {
                    "prompt": prompt.text + prompt.prefix,
                    "completion": sampled(prompt, row["text"], row["finish_reason"]),
                    "label": labels[one].label,
                    "because": labels[one].because,
                    "value": row["value"],
                    "exact_prompt": prompt.exact,
                }


FORMAT = RowFormat(
    name="kto",
    about="Prompt, completion, label: candidates that are wanted or not, by what came of them or by their value.",
    view="kto_examples",
    key=("trace_id", "index", "candidate_id"),
    takes=frozenset({"per_block"}),
    narrow=clearest,
    schema=SCHEMA,
    rows=rows,
)
