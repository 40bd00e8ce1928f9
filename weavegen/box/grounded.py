"""Grounded labels: what an assertion asked, and how it really came out, also where it held.

`assert condition, "question?"` is compiled as `assert __grounded__(condition, lambda: "question?"), "question?"`.
The places in the source stay as they were, so tracebacks do too.
"""

import ast
from collections.abc import Callable
from typing import Any

from weavegen.box.plain import clean

NAME = "__grounded__"
MOST = 64
"""Labels kept of one operation."""
LONGEST = 500


class Grounding(ast.NodeTransformer):
    """Has every assertion that carries a message report itself."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.generic_visit(node)
        if node.msg is not None:
            empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            call = ast.Call(ast.Name(NAME, ast.Load()), [node.test, ast.Lambda(empty, node.msg)], [])
            node.test = ast.fix_missing_locations(ast.copy_location(call, node.test))
        return node


def compiled(source: str, name: str) -> Any:
    """The code of a block, its assertions grounded. Raises what `compile` raises."""
    # Compiled as it is first: some errors show only there, and their text must be about the model's own words.
    plain = compile(source, name, "exec", dont_inherit=True)
    if "assert" not in source:
        return plain
    return compile(Grounding().visit(ast.parse(source, name)), name, "exec", dont_inherit=True)


class Labels:
    """The labels of one operation."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def ground(self, value: object, message: Callable[[], object]) -> object:
        """Note how a question came out; gives the condition's value back to the assertion."""
        truth = bool(value)
        if len(self.seen) < MOST:
            try:
                question = message()
            except Exception:  # noqa: BLE001 - a message that can't be made shows when its assertion fails
                return value
            if isinstance(question, str) and question.rstrip().endswith("?"):
                self.seen.append({"question": clean(question.strip(), LONGEST), "answer": truth})
        return value

    def take(self) -> list[dict[str, Any]]:
        """The labels since the last time."""
        seen, self.seen = self.seen, []
        return seen
