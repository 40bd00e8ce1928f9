"""Cuts a candidate down to its legal structure, so that traces do not mutate (docs/weave.md, "Linting")."""

import ast
import re
import unicodedata

from weavegen import python_parser
from weavegen.linting.forged_markup import without_fakes
from weavegen.linting.structure import GRAMMARS, fit
from weavegen.python_parser import NO_PYTHON
from weavegen.trace.blocks import PROSE, BlockType

MAX_CHARS = 100_000
"""Characters of a block. CPython's time is quadratic for some texts: a minute for 1 MB of f-strings, or of
functions with equal bodies. A prompt has no room for more either, because it contains whole blocks."""
MAX_COMBINING_MARKS = 500
"""Combining marks in a row. Python normalises names, and its time is quadratic in this number."""

_NON_ASCII = re.compile(rf"[^\x00-\x7f]{{{MAX_COMBINING_MARKS},}}")


def check_effort(text: str) -> None:
    """Raise ValueError if Python's parser would need minutes for the text."""
    if len(text) > MAX_CHARS:
        raise ValueError(f"{len(text):,} characters: a block has {MAX_CHARS:,} at most")
    for run in () if text.isascii() else _NON_ASCII.findall(text):
        count = 0
        for char in run:
            count = count + 1 if unicodedata.combining(char) else 0
            if count >= MAX_COMBINING_MARKS:
                raise ValueError(f"more than {MAX_COMBINING_MARKS} combining marks in a row")


def parse(text: str, flags: int = 0) -> ast.Module:
    """`python_parser.parse` for texts that it handles fast. Raises one of NO_PYTHON."""
    check_effort(text)
    return python_parser.parse(text, flags)


def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a text; None if it has none."""
    try:
        return parse(text)
    except NO_PYTHON:
        return None


def rewrite(type: BlockType, text: str, tree: ast.Module) -> str:
    """The legal structure of `text`, whose syntax tree is `tree`: the statements that the type's grammar accepts.

    Removes other statements, forged markup, and everything after a forged end of the block. If no statement is
    accepted, only forged markup is removed. A legal block is returned unchanged.
    """
    honest, end = without_fakes(text)
    if end is not None and (before := parsed(honest[:end])):
        honest, tree = honest[:end], before
    kept = fit(type, tree.body)[0] if type in GRAMMARS else []
    if not kept or (kept == tree.body and type not in PROSE):  # prose also loses its comments
        return honest.strip("\n")
    if honest != text:  # comments are gone, so the statements have other positions
        text = honest
        kept, _ = fit(type, parse(text).body)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    cut = "\n".join(_source(lines, node) for node in kept)
    return cut if parsed(cut) else text.strip("\n")


def _source(lines: list[bytes], node: ast.stmt) -> str:
    """The text of a statement with its decorators. `ast.get_source_segment` would split all lines each time."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, start = node.lineno - 1, node.col_offset
    if decorators := getattr(node, "decorator_list", None):
        first, start = decorators[0].lineno - 1, 0
        while not lines[first].lstrip().startswith(b"@"):  # it may stand some lines before its expression
            first -= 1
    segment = lines[first : node.end_lineno]
    segment[-1] = segment[-1][: node.end_col_offset]
    segment[0] = segment[0][start:]
    return b"\n".join(segment).decode()
