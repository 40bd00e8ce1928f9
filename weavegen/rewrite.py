"""Cut a candidate down to its legal structure (WEAVE section 6), so that traces do not mutate."""

import ast
import re

from weavegen.blocks import CALLBACK, PROSE, BlockType

FAKE_LABEL = re.compile(r"^[ \t]*#\s*q\s*:.*\n?", re.MULTILINE | re.IGNORECASE)
"""A comment that imitates the evaluator's notation."""


def registration(node: ast.stmt, method: str) -> ast.Call | None:
    """The call `self.<method>(...)` that a top-level statement is, or None."""
    if (
        isinstance(node, ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == method
        and isinstance(call.func.value, ast.Name)
    ):
        return call
    return None


def rewrite(type: BlockType, text: str, tree: ast.Module) -> str:
    """The first string of a prose block; the first function and its registration of a callback block.

    Everything else goes: other definitions, text after the block, fake `#q:` lines. Where the block has none
    of its legal structure, only the fake lines go.
    """
    if type in PROSE:
        for node in tree.body:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                literal = ast.get_source_segment(text, node)
                if literal is not None and isinstance(node.value.value, str):
                    return literal
    elif type in CALLBACK:
        function = next((n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
        if function is not None:
            method = "add_action" if type is BlockType.ACTION else "add_evaluation"
            calls = [node for node in tree.body if registration(node, method)]
            kept = _own(calls, function.name)
            if tree.body == [function, *kept]:  # legal as it is: not a byte of it is changed but for fakes
                return _without_fakes(text).strip("\n")
            return "\n".join([_source(text, function), *(_source(text, call) for call in kept)])
    return _without_fakes(text).strip("\n")


def _own(calls: list[ast.stmt], name: str) -> list[ast.stmt]:
    """The one registration to keep: that of the function if there is one, else the first."""
    for call in calls:
        if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(call)):
            return [call]
    return calls[:1]


def _source(text: str, node: ast.stmt) -> str:
    segment = ast.get_source_segment(text, node)
    decorators = getattr(node, "decorator_list", [])
    if decorators:
        lines = text.split("\n")
        segment = "\n".join(lines[decorators[0].lineno - 1 : node.end_lineno])
    return _without_fakes(segment or "")


def _without_fakes(source: str) -> str:
    """`source` less the comments that imitate labels; a match inside a string literal stays."""
    if not FAKE_LABEL.search(source):
        return source
    stripped = FAKE_LABEL.sub("", source)
    try:
        same = ast.dump(ast.parse(stripped)) == ast.dump(ast.parse(source))
    except SyntaxError:
        return source
    return stripped if same else source
