"""Examples in Postgres: good blocks that retrieval is seeded with."""

import hashlib
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.errors import UsageError
from weavegen.linting.lint import lint
from weavegen.store import models as m
from weavegen.trace.blocks import PROSE, BlockType
from weavegen.trace.render import normalise_body

EXAMPLES = m.table(m.Example)


class Example(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One example, as a file has it."""

    description: str
    question: str
    score: float
    """Log odds of yes."""
    body: str


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of examples of one block type."""

    type: BlockType
    example: list[Example]


def read(path: Path) -> list[tuple[BlockType, Example]]:
    """The examples in a .toml file, or in all such files of a folder, linted. Raises UsageError."""
    paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    found: list[tuple[BlockType, Example]] = []
    for file in paths:
        try:
            content = msgspec.convert(tomllib.loads(file.read_text()), File)
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}; give a .toml file or a folder") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{file}: {error}; see bootstraps/examples for the form") from None
        found += [(content.type, checked(file, content.type, example)) for example in content.example]
    if not found:
        raise UsageError(f"{path} has no examples: give a .toml file, or a folder of them")
    return found


def checked(file: Path, type: BlockType, example: Example) -> Example:
    """The example with its body as a trace would hold it. Raises UsageError where it is no good block."""
    body = normalise_body(type, example.body)
    if type in PROSE or type in (BlockType.ACTION, BlockType.EVALUATION, BlockType.OBSERVATION_INFERENCE):
        verdict = lint(type, body)
        if not verdict.compiles or verdict.penalties.total() > 0 or verdict.rewritten != body:
            fault = verdict.error or f"it costs {verdict.penalties.total():g} in penalties, or is rewritten"
            raise UsageError(f"{file}: the example {example.description!r} is no good {type} block: {fault}")
    return msgspec.structs.replace(example, body=body)


def load(conn: sa.Connection, examples: Iterable[tuple[BlockType, Example]]) -> int:
    """Write the examples that are new. Returns how many were."""
    rows: list[dict[str, Any]] = [
        {
            "sha256": hashlib.sha256(f"{type}\n{example.body}".encode()).hexdigest(),
            "type": type,
            **msgspec.structs.asdict(example),
        }
        for type, example in examples
    ]
    statement = insert(EXAMPLES).on_conflict_do_nothing().returning(EXAMPLES.c.id)
    return len(conn.execute(statement, rows).all())


def texts(conn: sa.Connection, ids: Iterable[int]) -> dict[int, tuple[BlockType, str]]:
    """Type and text of examples by id, in the form of a block."""
    found = {}
    for row in conn.execute(sa.select(EXAMPLES).where(EXAMPLES.c.id.in_(list(ids)))):
        percent = 100 / (1 + math.exp(-row.score))
        text = f"#startblock type: {row.type}\n# {row.description}\n{row.body}\n"
        text += f"#q: {row.question} Yes. ({percent:.3f}%)\n#endblock\n\n"
        found[row.id] = (BlockType(row.type), text)
    return found
