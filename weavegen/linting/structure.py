"""The legal structure of each block type: lark grammars whose terminals are whole top-level statements.

Python's own parser cuts the text into statements and says what each is; lark sees only that stream of kinds, a
few tokens a block. A grammar of Python over the characters would take lark about a hundred times as long as
`ast.parse`, which has to run anyhow, and it would have to follow every new version of the language.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import lark
from lark.lexer import Lexer

from weavegen.trace.blocks import CALLBACK, PROSE, BlockType

GRAMMARS = {
    **dict.fromkeys(PROSE, "prose"),
    **dict.fromkeys(CALLBACK, "callback"),
    BlockType.OBSERVATION_INFERENCE: "observation_inference",
}
"""Which grammar a block type has. The others are not written by the model, or have no structure."""

REGISTERS = {BlockType.ACTION: "add_action", BlockType.EVALUATION: "add_evaluation"}
VIEWS = frozenset({"add_observation_view", "remove_observation_view"})
END = "$END"
"""Lark's name for the end of its input."""


class _Statements(Lexer):
    """Brings nothing of its own: `Shape` is fed with what Python's parser, the true lexer, has found."""

    __future_interface__ = 1

    def __init__(self, conf: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[lark.Token]:
        return iter(())


@cache
def _grammar(name: str) -> lark.Lark:
    text = (Path(__file__).parent / "grammars" / f"{name}.lark").read_text()
    return lark.Lark(text, parser="lalr", lexer=_Statements)


class Shape:
    """A block's structure as it grows: takes statements' kinds one by one, refuses what may not come next."""

    def __init__(self, type: BlockType) -> None:
        self._parser = _grammar(GRAMMARS[type]).parse_interactive("")

    def accepts(self, kind: str) -> bool:
        return kind in self._parser.choices()  # type: ignore[no-untyped-call]

    def take(self, kind: str) -> bool:
        """Whether the kind may come next; if so, it has come."""
        if not self.accepts(kind):
            return False
        self._parser.feed_token(lark.Token(kind, ""))
        return True

    def complete(self) -> bool:
        return self.accepts(END)


def fit(type: BlockType, body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], bool]:
    """The statements that make the legal structure, in its order, and whether they are all there is.

    What the grammar refuses is cut. It is offered once more after the rest: so a registration that stands
    before its function finds its place.
    """
    shape = Shape(type)
    kept: list[ast.stmt] = []
    refused: list[tuple[str, ast.stmt]] = []
    for kind, node in zip(kinds(type, body), body, strict=True):
        if shape.take(kind):
            kept.append(node)
        else:
            refused.append((kind, node))
    exact = not refused and shape.complete()
    kept += [node for kind, node in refused if shape.take(kind)]
    return kept, exact


def kinds(type: BlockType, body: Sequence[ast.stmt]) -> list[str]:
    """The terminal that each top-level statement is in the type's grammar."""
    if type in PROSE:
        return ["STRING" if string(node) is not None else "OTHER" for node in body]
    if type is BlockType.OBSERVATION_INFERENCE:
        return [_inference_kind(node) for node in body]
    method = REGISTERS[type]
    function = first_function(body)
    found = [
        "FUNCTION" if is_function(node) else "REGISTRATION" if registration(node, method) else "OTHER"
        for node in body
    ]
    own = {i for i, kind in enumerate(found) if kind == "REGISTRATION" and function and _names(body[i], function)}
    if own:  # of several registrations only those of the function count
        found = ["OTHER" if kind == "REGISTRATION" and i not in own else kind for i, kind in enumerate(found)]
    return found


def string(node: ast.stmt | None) -> str | None:
    """The text of a statement that is a string literal and nothing else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


def is_function(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def first_function(body: Iterable[ast.stmt]) -> str | None:
    """The name of the first function that is defined at the top level."""
    return next((n.name for n in body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)


def registration(node: ast.stmt, method: str) -> ast.Call | None:
    """The call `self.<method>(...)` that a statement is, or None."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == "self"
    ):
        return call
    return None


def _names(node: ast.stmt, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _inference_kind(node: ast.stmt) -> str:
    if is_function(node):
        return "FUNCTION"
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
        return "SETUP"
    if isinstance(node, ast.ClassDef):
        return "OTHER"
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return "VIEW" if any(map(_changes_views, calls)) else "OTHER"


def _changes_views(call: ast.Call) -> bool:
    """Adds or removes a view, or works on a tool, which is one: `Tool(self, ...)`, `self.tools[key].close()`."""
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in VIEWS:
            return True
        owner = call.func.value
        if isinstance(owner, ast.Subscript) and isinstance(owner.value, ast.Attribute):
            return owner.value.attr == "tools"
    return isinstance(call.func, ast.Name) and any(
        isinstance(arg, ast.Name) and arg.id == "self" for arg in call.args[:1]
    )
