"""The questions of docs/corpus.md, and the corpus for which their answers are computed.

The corpus is generated (bench/generator.py), small, and always the same.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.generator import fill
from tests.support.database import database_of_copy
from weavegen.config import Config
from weavegen.database import Database
from weavegen.store.views import refresh as refresh_views

DOCUMENT = Path(__file__).parents[2] / "docs" / "corpus.md"
BLOCKS, SEED = 3_000, 6
QUESTION = re.compile(r"^### (\d+)\. (.+?)\n(.*?)```sql\n(.*?)```\n\n```text\n(.*?)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Question:
    """A question of the document: its SQL, and the answer that the document shows."""

    number: int
    title: str
    query: str
    answer: str
    place: tuple[int, int]
    """Begin and end of the answer in the document's text."""


def questions() -> list[Question]:
    """The questions of the document, in order."""
    return [
        Question(int(match[1]), match[2], match[4], match[5], match.span(5))
        for match in QUESTION.finditer(DOCUMENT.read_text())
    ]


@contextlib.contextmanager
def filled(config: Config, template: str) -> Iterator[Database]:
    """A database with the corpus."""
    with database_of_copy(config, template) as db:
        make(db)
        yield db


def make(db: Database) -> None:
    """Fill an empty database with the corpus."""
    fill(db.url, BLOCKS, SEED)
    with db.connect() as conn:
        list(refresh_views(conn))


def printed(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Columns and rows as the document shows them: like `weavegen sql`, with numbers aligned left."""
    cells = [columns, *(["" if value is None else str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)
    return "\n".join(lines) + "\n"


def rewrite(answers: dict[int, str]) -> None:
    """Write answers into the document, by the numbers of the questions."""
    text = DOCUMENT.read_text()
    for question in reversed(questions()):
        begin, end = question.place
        text = text[:begin] + answers[question.number] + text[end:]
    DOCUMENT.write_text(text)
