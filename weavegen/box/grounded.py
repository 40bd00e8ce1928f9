"""Grounded labels: execution answers the questions of assertions, both when they hold and when they fail.

`assert condition, "question?"` is compiled as `assert __grounded__(condition, lambda: "question?"), "question?"`, which
evaluates the question even if the condition holds. So an assertion whose question may have effects is left as it is.
Line and column numbers, and therefore tracebacks, do not change.
"""

import ast
from collections.abc import Callable
from typing import Any

from weavegen.box.plain import clean

NAME = "__grounded__"
MAX_LABELS = 64
"""Labels kept per operation."""
MAX_QUESTION_CHARS = 500
EFFECTS = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.comprehension)
"""Parts of a question that may change something, as a comprehension may its iterator, or that a lambda can't have."""


class Grounding(ast.NodeTransformer):
    """Rewrites every assertion with a message without EFFECTS so that it reports its outcome."""

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        self.generic_visit(node)
        if node.msg is not None and not any(isinstance(part, EFFECTS) for part in ast.walk(node.msg)):
            empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            call = ast.Call(ast.Name(NAME, ast.Load()), [node.test, ast.Lambda(empty, node.msg)], [])
            node.test = ast.fix_missing_locations(ast.copy_location(call, node.test))
        return node


def compiled(source: str, name: str) -> Any:
    """Compile a block so that its assertions are grounded. Raises what `compile` raises."""
    # The unchanged source is compiled first, so that error messages quote the model's own text.
    plain = compile(source, name, "exec", dont_inherit=True)
    if "assert" not in source:
        return plain
    return compile(Grounding().visit(ast.parse(source, name)), name, "exec", dont_inherit=True)


class Labels:
    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def ground(self, value: object, message: Callable[[], object]) -> object:
        """Record an assertion's question and answer. Returns the condition's value, which the assertion then tests."""
        truth = bool(value)
        if len(self.seen) < MAX_LABELS:
            try:
                question = message()
            except Exception:  # noqa: BLE001 - the assertion itself raises this if it fails
                return value
            if isinstance(question, str) and question.rstrip().endswith("?"):
                self.seen.append({"question": clean(question.strip(), MAX_QUESTION_CHARS), "answer": truth})
        return value

    def take(self) -> list[dict[str, Any]]:
        """Return and forget the labels since the last call."""
        seen, self.seen = self.seen, []
        return seen
