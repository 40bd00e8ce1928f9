"""For a student: prompts in the chat template of another model than the writer, and the tokens of its tokenizer.

The tokenizer and the template are those of the model's folder, as `transformers` saves them.
"""

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from tokenizers import Tokenizer

from weavegen import chat_template, sql
from weavegen.errors import UsageError
from weavegen.exports.format import Format, Key, Row, RowFormat, RowMaker, Source, column
from weavegen.kernel import context
from weavegen.kernel.template import PLAIN, derive, reply_after
from weavegen.trace.blocks import BlockType
from weavegen.training.plan import IGNORED

TOKENIZED = frozenset({"sft", "messages"})
"""Formats that get token columns. The others get prompts in the student's template."""
DAY = datetime.date(2024, 7, 26)
"""The date for templates that write one: equal rows give equal bytes. It is the one that Llama 3's writes by itself."""
COLUMNS = [
    column("input_ids", ["int64"], "Tokens of the whole, by the student's tokenizer."),
    column("labels", ["int64"], "The same, but -100 for each token that the student only reads."),
]


class Student:
    """A model that is to learn from what another one wrote."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError if the folder has no tokenizer, or a template that can't be used."""
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            self._tokenizer.no_truncation()  # which the file may ask for
            self._tokenizer.no_padding()
            in_config = chat_template.config_of(folder).get("chat_template")
            has_template = in_config or (folder / chat_template.FILE).is_file()
            self.template = derive(chat_template.renderer(folder, day=DAY)) if has_template else PLAIN
        except Exception as error:  # noqa: BLE001 - tokenizers raises no other class
            reason = " ".join(str(error).split())[:200]
            raise UsageError(f"{folder}: {reason}: give a model's folder with tokenizer.json") from None

    def tokens(self, pieces: Iterable[tuple[str, bool]]) -> Row:
        """`input_ids` and `labels` of consecutive texts; True: the student learns to write it.

        Each text is encoded alone, because what a model samples begins with a new token.
        """
        row: Row = {"input_ids": [], "labels": []}
        for number, (text, learned) in enumerate(pieces):
            new = self._tokenizer.encode(text, add_special_tokens=number == 0 and self.template.bos).ids
            row["input_ids"] += new
            row["labels"] += new if learned else [IGNORED] * len(new)
        return row

    def conversation(self, messages: Sequence[Any]) -> Row:
        """Tokens of a conversation, of its rows of messages; the student learns what the model wrote in it."""
        pieces: list[tuple[str, bool]] = []
        before: BlockType | None = None
        for message in messages:
            type, written = BlockType(message.type), message.first == messages[-1].first
            ended = not written or message.finish_reason == "stop"
            read, text = self.template.read_again if written else self.template, message.text
            if type is BlockType.ASSISTANT:
                text = reply_after(read.reply_open, text, ended)
            spoken = context.spoken(type, text, read, before)
            opening = read.reply_open if written else ""  # after it a model writes, and reads again what it sampled
            closing = "" if ended else read.assistant_close  # the model did not write it
            own = spoken.removeprefix(opening).removesuffix(closing)
            pieces += [(opening, False), (own, written), (closing, False)]
            before = type
        return self.tokens(piece for piece in pieces if piece[0])


def for_student(format: Format, student: Student, own: Collection[str] | None = None) -> Format:
    """The format as a student needs it. Raises UsageError if it does not apply.

    `own`: the student's names, for a trainer, which makes the tokens itself. Its own traces stay as they are.
    """
    if "student" not in format.takes or not isinstance(format, RowFormat):
        raise UsageError(f"--student does not apply to the format {format.name}: leave it out")
    rows: RowMaker = format.rows
    tokenized = own is None and format.name in TOKENIZED

    def made(source: Source, trace: int, keys: Iterator[Key]) -> Iterator[Row]:
        wrote = own is not None and sql.run(source.conn, "exports/writer", trace=trace).scalar_one_or_none() in own
        source.template = None if wrote else student.template
        for row in rows(source, trace, keys):
            if tokenized and "completion" in row:
                row |= student.tokens([(row["prompt"], False), (row["completion"], True)])
            elif tokenized:
                row |= student.conversation(row.pop("spoken"))
            yield row

    fields = [*COLUMNS, *format.schema] if tokenized else list(format.schema)
    return dataclasses.replace(format, schema=pa.schema(fields), rows=made)
