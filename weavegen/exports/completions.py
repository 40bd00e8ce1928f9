"""What formats of prompts and completions share: the loop that looks up records and their prompts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.exports.format import Key, Row, RowFormat, Source, declared
from weavegen.exports.read_prompts import ModelPrompt, PromptReader
from weavegen.kernel import context
from weavegen.kernel.template import Template, reply_after
from weavegen.store.releases import batches

BATCH = 128
"""Keys that are looked up together."""
GONE = "the block is gone: its tick was restarted meanwhile"
UNKNOWN = "the prompt was not recorded"
OWN_TEMPLATE = "a chat API applied its own template, and the prompt is in ChatML instead: give --student"
WRITTEN = {"body": "finish_reason", "text": "finish_reason", "chosen": "chosen_reason", "rejected": "rejected_reason"}
"""Fields of records with what the model wrote, and those that say how its sampling ended."""

Record = Mapping[Any, Any]
"""What a row is made of. `step_id` is the step whose prompt belongs to it."""


def of_prompts(name: str, make: Callable[[Record, ModelPrompt], Row], **more: Any) -> RowFormat:
    """The format `name`, whose rows belong to prompts.

    sql/NAME.sql finds the records. `make` turns a record and its prompt into the columns that need the prompt; the
    others are those of the record. `more`: further arguments of RowFormat.
    """
    format = declared(name)

    def rows(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
        reader = PromptReader(source.conn, trace, source.template)
        for batch in batches(keys, BATCH):
            records = find(source.conn, name, trace, batch)
            reader.load([record["step_id"] for record in records.values()])
            for key in batch:
                if (record := records.get(key)) is None:
                    source.left_out[GONE] += 1
                elif (prompt := reader.prompt(record["step_id"])) is None:
                    source.left_out[UNKNOWN] += 1
                else:
                    if prompt.messages is not None and not prompt.exact:
                        source.notes[OWN_TEMPLATE] += 1
                    if source.template is not None:
                        record = for_reader(record, prompt, source.template)
                    yield values(record, format["schema"].names) | make(record, prompt) | {"exact_prompt": prompt.exact}

    return RowFormat(rows=rows, **format, **more)


def find(conn: Connection, name: str, trace: int, batch: Sequence[Key]) -> Mapping[Key, Record]:
    """The records of some keys of a trace, by sql/NAME.sql. Those that are gone are left out.

    The query has a parameter for each column of the format's key, with the numbers of all these keys.
    """
    columns = declared(name)["key"]
    # A release of version 0.1 has keys of ticks without `ending`.
    keys = {(*key, -key[1])[: len(columns)]: key for key in batch}
    numbers = dict(zip(columns, map(list, zip(*keys, strict=True)), strict=True))
    rows = sql.run(conn, f"exports/{name}", trace=trace, **numbers).mappings()
    found = ((tuple(row[column] for column in columns), row) for row in rows)
    return {keys[key]: row for key, row in found if key in keys}


def values(record: Record, columns: Iterable[str]) -> Row:
    """The values of a record for those of the columns that it has."""
    return {name: record[name] for name in columns if name in record}


def for_reader(record: Record, prompt: ModelPrompt, template: Template) -> Record:
    """A record with its texts as a model with this template, which did not write them, would write them."""
    written = dict(record)
    for name in WRITTEN.keys() & record.keys():
        text = record[name]
        if prompt.messages is not None:
            text = reply_after(prompt.text, text, record.get(WRITTEN[name], "stop") == "stop")
        written[name] = context.unmarked(text, template)
    return written


def split_body(prompt: ModelPrompt, body: str) -> tuple[str, str]:
    """A prompt and the rest of a body. The model read the body's fixed beginning as part of the prompt."""
    prefix = prompt.prefix if body.startswith(prompt.prefix) else ""
    return prompt.text + prefix, body.removeprefix(prefix)


def completion(prompt: ModelPrompt, text: str, finish_reason: str) -> str:
    """A candidate's text as it was sampled after `prompt.text + prompt.prefix`. A truncated one has no end."""
    text = text.removeprefix(prompt.prefix)
    if finish_reason != "stop":
        return text
    return (text.rstrip("\n") if prompt.messages is None else text) + prompt.end
