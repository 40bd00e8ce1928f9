"""Cut a candidate down to its legal structure (WEAVE section 6), so that traces do not mutate."""

import ast
import re
import unicodedata
import warnings

from weavegen.linting.forged_markup import without_fakes
from weavegen.linting.structure import GRAMMARS, fit
from weavegen.trace.blocks import PROSE, BlockType

LONGEST = 100_000
"""Characters of a block at most. CPython takes quadratic time for some texts: for 1 MB, a minute of f-strings or
of functions with equal bodies. It also is more than a prompt has room for: a block stands there as a whole."""
MARKS = 500
"""Python normalises names; the time for it grows with the square of the combining marks in a row."""

_NO_ASCII = re.compile(rf"[^\x00-\x7f]{{{MARKS},}}")


NO_PYTHON = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError)
"""What Python's parser and compiler raise."""


def check_effort(text: str) -> None:
    """Raises ValueError where a text would keep Python's parser busy for minutes."""
    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} characters: a block has {LONGEST:,} at most")
    for run in () if text.isascii() else _NO_ASCII.findall(text):
        count = 0
        for sign in run:
            count = count + 1 if unicodedata.combining(sign) else 0
            if count >= MARKS:
                raise ValueError(f"more than {MARKS} combining marks in a row")


def parse(text: str) -> ast.Module:
    """Python's own parser, without its warnings. Raises what `ast.parse` does."""
    check_effort(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parses(text: str) -> bool:
    try:
        parse(text)
    except NO_PYTHON:
        return False
    return True


def rewrite(type: BlockType, text: str, tree: ast.Module) -> str:
    """The legal structure of `text`, which compiles to `tree`: what the type's grammar takes.

    Everything else goes: other definitions, text after the block, fake lines. Where the block has none of
    its legal structure, only the fakes go. A legal block comes back as it is, byte for byte.
    """
    honest, end = without_fakes(text)
    if end is not None and parses(honest[:end]):
        honest = honest[:end]
        tree = parse(honest)
    kept = fit(type, tree.body)[0] if type in GRAMMARS else []
    if not kept or (kept == tree.body and type not in PROSE):  # of prose the comments go, too
        return honest.strip("\n")
    if honest != text:  # less some comments: the same statements, but in other places
        text = honest
        kept, _ = fit(type, parse(text).body)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").encode().split(b"\n")
    left = "\n".join(_source(lines, node) for node in kept)
    return left if parses(left) else text.strip("\n")


def _source(lines: list[bytes], node: ast.stmt) -> str:
    """The text of a statement with its decorators. `ast.get_source_segment` would split all lines each time."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, start = node.lineno - 1, node.col_offset
    if decorators := getattr(node, "decorator_list", None):
        first, start = decorators[0].lineno - 1, 0
    segment = lines[first : node.end_lineno]
    segment[-1] = segment[-1][: node.end_col_offset]
    segment[0] = segment[0][start:]
    return b"\n".join(segment).decode()
