"""The legal structure of each block type: lark grammars whose terminals are whole top-level statements.

Python's own parser splits the text into statements, and each statement becomes a terminal; lark reads only these,
a few tokens a block. A lark grammar of Python itself would take about a hundred times as long as `ast.parse`,
which has to run anyway, and would have to follow every new version of the language.
"""

import ast
from collections.abc import Iterable, Sequence
from functools import cache

import lark

from weavegen.trace.blocks import CALLBACK, PROSE, BlockType

GRAMMARS = {
    **dict.fromkeys(PROSE, "prose"),
    **dict.fromkeys(CALLBACK, "callback"),
    BlockType.OBSERVATION_INFERENCE: "observation_inference",
}
"""The grammar of each block type. The model does not write the other types, or they have no structure."""

REGISTERS = {BlockType.ACTION: "add_action", BlockType.EVALUATION: "add_evaluation"}
VIEWS = frozenset({"add_observation_view", "remove_observation_view"})
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _grammar(name: str) -> lark.Lark:
    # The lexer reads nothing: `Shape` feeds the parser by hand.
    return lark.Lark.open(f"grammars/{name}.lark", rel_to=__file__, parser="lalr", lexer="basic")


class Shape:
    """A parser of a block's structure that takes one kind of statement at a time."""

    def __init__(self, type: BlockType) -> None:
        self._parser = _grammar(GRAMMARS[type]).parse_interactive()

    def accepts(self, kind: str) -> bool:
        """Whether the kind may come next; `$END` is the end of the block."""
        return kind in self._parser.choices()  # type: ignore[no-untyped-call]

    def take(self, kind: str) -> bool:
        """Feed the kind if it may come next. Returns whether it may."""
        if not self.accepts(kind):
            return False
        self._parser.feed_token(lark.Token(kind, ""))
        return True


def fit(type: BlockType, body: Sequence[ast.stmt]) -> tuple[list[ast.stmt], bool]:
    """The statements that form the legal structure, in order, and whether the body has no other statements.

    A statement that the grammar rejects is tried again at the end, because a registration may stand before its
    function. If the grammar rejects it again, it is removed.
    """
    shape = Shape(type)
    kept: list[ast.stmt] = []
    refused: list[tuple[str, ast.stmt]] = []
    for kind, node in zip(kinds(type, body), body, strict=True):
        if shape.take(kind):
            kept.append(node)
        else:
            refused.append((kind, node))
    exact = not refused and shape.accepts("$END")
    kept += [node for kind, node in refused if shape.take(kind)]
    return kept, exact


def kinds(type: BlockType, body: Sequence[ast.stmt]) -> list[str]:
    """The terminal of each top-level statement in the type's grammar."""
    if type in PROSE:
        return ["STRING" if string(node) is not None else "OTHER" for node in body]
    if type is BlockType.OBSERVATION_INFERENCE:
        return [_inference_kind(node) for node in body]
    method = REGISTERS[type]
    function = first_function(body)
    registrations = [node for node in body if registration(node, method)]
    own = [node for node in registrations if any(isinstance(n, ast.Name) and n.id == function for n in ast.walk(node))]
    registrations = own or registrations  # of several registrations only those of the function count
    return [
        "FUNCTION" if isinstance(node, FUNCTION) else "REGISTRATION" if node in registrations else "OTHER"
        for node in body
    ]


def string(node: ast.stmt | None) -> str | None:
    """The text of a statement that is one string literal; None for other statements."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return None


def first_function(body: Iterable[ast.stmt]) -> str | None:
    """The name of the first function at the top level."""
    return next((node.name for node in body if isinstance(node, FUNCTION)), None)


def registration(node: ast.stmt, method: str) -> ast.Call | None:
    """The call of a statement `self.<method>(...)`; None for other statements."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr)) as call):
            return call if attr == method else None
    return None


def _inference_kind(node: ast.stmt) -> str:
    if isinstance(node, FUNCTION):
        return "FUNCTION"
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
        return "SETUP"
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return "VIEW" if not isinstance(node, ast.ClassDef) and any(map(_changes_views, calls)) else "OTHER"


def _changes_views(call: ast.Call) -> bool:
    """Whether a call adds or removes a view or a tool: `Tool(self, ...)`, `self.tools[key].close()`."""
    match call:
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in VIEWS:
            return True
        case ast.Call(func=ast.Attribute(value=ast.Subscript(value=ast.Attribute(attr=attr)))):
            return attr == "tools"
        case ast.Call(func=ast.Name(), args=[ast.Name(id="self"), *_]):
            return True
    return False
