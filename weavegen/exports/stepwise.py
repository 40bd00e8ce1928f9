"""`stepwise`: a tick's blocks as steps, each right or wrong, for process reward models."""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from weavegen.exports.completions import EXACT, GONE, PLACE, PROMPT, UNKNOWN, batches, parted, values
from weavegen.exports.format import Key, Row, RowFormat, Source, column
from weavegen.exports.read_prompts import END, PromptReader

TICKS = """
select * from stepwise_examples where trace_id = :trace and tick = any(cast(:ticks as bigint[]))
"""
BLOCKS = """
select b.tick, b.index, b.type, b.body, b.rendered, c.step_id,
  case
    when c.id is null then null when not b.compiles then false when b.ran is not null then b.ran
    when b.preference is not null then b.preference >= 0
  end as label
from blocks b left join candidates c on c.id = b.candidate_id and c.trace_id = b.trace_id
where b.trace_id = :trace and b.tick = any(cast(:ticks as bigint[])) order by b.tick, b.index
"""
LABELS = re.compile(r"^#q: .*\n", re.MULTILINE)
"""Lines that say how a block came out; a body has none that begin so (render.normalise_body)."""
ABOUT = [one for one in PLACE if one.name not in ("index", "type")]
SCHEMA = pa.schema(
    [
        PROMPT,
        column(
            "completions",
            pa.list_(pa.string()),
            "The steps. What stands before one in the trace, such as an error, is at its beginning.",
        ),
        column("labels", pa.list_(pa.bool_()), "Whether each is right: it ran, or led to what ran."),
        column("types", pa.list_(pa.string()), "Type of each step's block."),
        column("indexes", pa.list_(pa.int32()), "Index of each step's block."),
        column("tick", pa.int32(), "Number of the tick."),
        *ABOUT,
        EXACT,
    ]
)


def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
    reader = PromptReader(source.conn, trace)
    for batch in batches(keys):
        wanted = {"trace": trace, "ticks": [tick for _, tick in batch]}
        ticks = {row["tick"]: row for row in source.conn.execute(sa.text(TICKS), wanted).mappings()}
        blocks: dict[int, list[Any]] = {tick: [] for _, tick in batch}
        for row in source.conn.execute(sa.text(BLOCKS), wanted):
            blocks[row.tick].append(row)
        first = {
            tick: next((one for one in found if one.label is not None), None) for tick, found in blocks.items()
        }
        reader.know([one.step_id for one in first.values() if one is not None])
        for _, tick in batch:
            opening = first[tick]
            if opening is None or tick not in ticks:
                source.leave_out(GONE)
                continue
            if (prompt := reader.prompt(opening.step_id)) is None:
                source.leave_out(UNKNOWN)
                continue
            read, rest = parted(prompt, opening.body)
            completions, labels, types, indexes = [rest + END], [opening.label], [opening.type], [opening.index]
            before = ""
            for one in blocks[tick]:
                if one.index <= opening.index:
                    continue
                # The answers in the footers are what is to be learned: they are no part of the text.
                before += "\n" + LABELS.sub("", one.rendered).removesuffix("\n")
                if one.label is not None:
                    completions.append(before)
                    labels.append(one.label)
                    types.append(one.type)
                    indexes.append(one.index)
                    before = ""
            yield values(ticks[tick], ABOUT) | {
                "prompt": read,
                "completions": completions,
                "labels": labels,
                "types": types,
                "indexes": indexes,
                "tick": tick,
                "exact_prompt": prompt.exact,
            }


FORMAT = RowFormat(
    name="stepwise",
    about="Prompt, completions, labels: a tick's blocks as steps that were right or wrong, for process rewards.",
    view="stepwise_examples",
    key=("trace_id", "tick"),
    schema=SCHEMA,
    rows=rows,
)
