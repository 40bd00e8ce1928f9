"""Files of examples: read, and linted as candidates are."""

import tomllib
from pathlib import Path

import msgspec

from weavegen.errors import UsageError
from weavegen.linting.lint import lint
from weavegen.store.examples import Example
from weavegen.trace.blocks import PROSE, BlockType
from weavegen.trace.render import normalise_body


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of examples of one block type."""

    type: BlockType
    example: list[Example]


def read(path: Path) -> list[tuple[BlockType, Example]]:
    """The examples of a .toml file, or of all such files of a folder. Raises UsageError if one is not legal."""
    paths = sorted(path.glob("*.toml")) if path.is_dir() else [path]
    examples: list[tuple[BlockType, Example]] = []
    for file in paths:
        try:
            content = msgspec.convert(tomllib.loads(file.read_text()), File)
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}; give a .toml file or a folder") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
            raise UsageError(f"{file}: {error}; see bootstraps/examples for the form") from None
        examples += [(content.type, checked(file, content.type, example)) for example in content.example]
    if not examples:
        raise UsageError(f"{path} has no examples: give a .toml file, or a folder of them")
    return examples


def checked(file: Path, type: BlockType, example: Example) -> Example:
    """The example with its body as a trace would hold it. Raises UsageError if linting finds a fault."""
    body = normalise_body(type, example.body)
    if type in PROSE or type in (BlockType.ACTION, BlockType.EVALUATION, BlockType.OBSERVATION_INFERENCE):
        verdict = lint(type, body)
        if not verdict.compiles or verdict.penalties.total() > 0 or verdict.rewritten != body:
            fault = verdict.error or f"it costs {verdict.penalties.total():g} in penalties, or is rewritten"
            raise UsageError(f"{file}: the example {example.description!r} is not a good {type} block: {fault}")
    return msgspec.structs.replace(example, body=body)
