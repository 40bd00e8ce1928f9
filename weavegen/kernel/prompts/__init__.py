"""The words that weavegen says to the model: rubrics, hints, stems, calibration questions."""

import hashlib
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from weavegen.trace.blocks import BlockType

FOLDER = Path(__file__).parent


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


@cache
def rubric_version() -> str:
    """Changes whenever a question or a calibration example does; stored with every score."""
    text = (FOLDER / "rubric.toml").read_bytes() + (FOLDER / "calibration.txt").read_bytes()
    return hashlib.sha256(text).hexdigest()[:12]


def questions(type: BlockType) -> tuple[str, ...]:
    """What the evaluator is asked about a candidate; the first is the one that selection uses by default."""
    return tuple(_table("rubric")["questions"][type])


def wordings(question: str) -> tuple[str, ...]:
    """How a question may be put: in its own words, and in others that mean the same."""
    return (question, *_table("rubric")["wordings"].get(question, ()))


def question_of(wording: str) -> str:
    """The question that is put in these words."""
    return next((question for question, others in _table("rubric")["wordings"].items() if wording in others), wording)


def option_question() -> str:
    """The yes/no question that the option block puts to the model."""
    return str(_table("rubric")["option"])


@cache
def instruction(type: BlockType, to: Literal["instruction", "query", "next"] = "instruction") -> str:
    """What stands between the context and the block to come, the header line of its BM25 query, or its type."""
    hints = _table("hints")
    parts = [hints[to], *([hints["hints"][type]] if to == "instruction" else [])]
    return "\n".join(part.strip() for part in parts).replace("{type}", type)


@cache
def text(name: str) -> str:
    """A prompt that is a file of its own."""
    return (FOLDER / f"{name}.txt").read_text()


def message(agent: str, name: str) -> str:
    """A message of an agent to the model. Fill in its `{fields}` with `str.format`."""
    return str(_table("messages")[agent][name])


def tool(name: str) -> str:
    """The description of a tool for the model."""
    return str(_table("tools")[name]["description"])


@cache
def arguments(tool: str) -> type[msgspec.Struct]:
    """The arguments of a tool, as tools.toml declares them."""
    types = {"str": str, "bool": bool, "int": int, "int?": int | None}
    fields: list[Any] = []
    for name, declared in _table("tools")[tool]["arguments"].items():
        type, *default = declared if isinstance(declared, list) else [declared]
        fields.append((name, types[type], *([None] if type == "int?" else default)))
    return msgspec.defstruct(tool, fields, frozen=True, forbid_unknown_fields=True, kw_only=True)


def stems(type: BlockType) -> tuple[str, ...]:
    """Beginnings of debug and backtrack blocks, one of which is drawn to vary the reasoning."""
    return tuple(_table("stems").get(type, ()))


def calibration() -> str:
    """Questions whose right probability is known, so that percentages mean something to the model."""
    return text("calibration")
