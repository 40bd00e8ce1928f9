"""Lints a candidate: whether it compiles, its penalties, and its text after rewriting.

The penalties are those of weave-agent (docs/weave.md, "Linting"). They are subtracted for selection only.
"""

import ast
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from weavegen.kernel.steps import Lint, Penalties, Verdict
from weavegen.linting.forged_markup import without_fake_lines
from weavegen.linting.partial import viable_prefix
from weavegen.linting.structure import REGISTERS, first_function, fit, registration, string
from weavegen.linting.truncate import parse, rewrite
from weavegen.python_parser import NO_PYTHON
from weavegen.trace.blocks import CALLBACK, IMAGINED, PROSE, BlockType

CODE_IN_PROSE = re.compile(
    r"^[^\S\n]*(?:import \w|from [\w.]+ import |def \w+\(|class \w+|return\b|for \w+ in .*:$|if .*:$)"
    r"|\bprint\(|\bself\.(?:add|agent|task|tools)|\bsubagent\.\w+\(|\[/?INST\]|```"
    r"|^[^\S\n]*#[^\S\n]*[qQ][^\S\n]*:",
    re.MULTILINE,
)
FORBIDDEN_IN_ACTION = {"add_evaluation": (0.5, 0.3), "add_observation_view": (0.5, 0.3)}
"""Method: (penalty for a call through self, penalty for a call through another name of the subagent)."""
TASK_EVALUATION = (2.0, 1.0)
MAX_ERROR_CHARS = 500
"""Some errors quote an identifier, which may be as long as the text."""
MAX_FOLDING_CHARS = 20_000
"""Longer texts, and all texts with a `*`, are compiled without constant folding. Python keeps every intermediate
result: `"a" * 4096 + "b" * 4096 + ...` takes 900 MB for 3,000 characters."""


def syntax_error(text: str) -> str | None:
    """Why `text` is not a legal part of a trace; None if it is legal.

    Stricter than Python, because the whole trace must compile as one file: no `__future__` import (legal only at
    the top of a file), no `global` outside a function (other blocks use the name), and no form feed (a trace has
    no control characters). Texts for which Python would need minutes are illegal too (`truncate.check_effort`).
    """
    tree = _read(text)
    return tree if isinstance(tree, str) else None


def _read(text: str) -> ast.Module | str:
    """The syntax tree, or the syntax error."""
    try:
        tree = parse(text.rstrip("\n"))  # as it will be recorded
        if "*" in text or len(text) > MAX_FOLDING_CHARS:
            _prevent_folding(tree)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<block>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{type(error).__name__}: {str(error.msg)[:MAX_ERROR_CHARS]} (line {error.lineno})"
    except NO_PYTHON as error:
        return f"{type(error).__name__}: {error}"
    if "\f" in text:
        return "SyntaxError: a form feed is not allowed inside a trace"
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        return "SyntaxError: a __future__ import is not allowed inside a trace"
    if "global" in text and _has_global(tree):
        return "SyntaxError: global is not allowed outside a function"
    return tree


def _prevent_folding(tree: ast.Module) -> None:
    """Replace operators that Python folds at compile time by operators that it does not fold.

    This does not change whether the tree is legal, except in patterns: `-1` and `1 + 2j` stay for them.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
            node.op = ast.Not()
        elif isinstance(node, ast.BinOp) and not isinstance(getattr(node.right, "value", None), complex):
            node.op = ast.MatMult()


def _has_global(tree: ast.Module) -> bool:
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return any(isinstance(node, ast.Global) for node in nodes)


def verdict(step: Lint, text: str, tokens: int, *, cut: bool = False) -> Verdict:
    """The verdict of a step on a candidate of `tokens` sampled tokens. `cut`: the token limit ended it."""
    if step.linting:
        checked = lint(step.type, text, tokens=step.before + tokens, after_debug=step.after_debug)
        return replace(checked, viable=viable_prefix(step.type, text)) if step.pieces and cut else checked
    error = None if step.type in IMAGINED else syntax_error(text)
    return Verdict(compiles=error is None, error=error, rewritten=text.strip("\n"), penalties=Penalties())


def lint(type: BlockType, text: str, *, tokens: int = 0, after_debug: bool = False) -> Verdict:
    """Check a candidate of `tokens` sampled tokens, and cut it down to its legal structure."""
    if type in IMAGINED:
        return _comment(text)
    tree = _read(text)
    length = max(0, tokens - 96) * 0.5 / 672 if after_debug else 0.0
    if isinstance(tree, str):
        penalties = Penalties(syntax=2.0, length_after_debug=length)
        return Verdict(compiles=False, error=tree, rewritten=without_fake_lines(text), penalties=penalties)
    found = _prose(tree.body) if type in PROSE else _callback(type, tree) if type in CALLBACK else {}
    penalties = Penalties(length_after_debug=length, **found)
    return Verdict(compiles=True, rewritten=rewrite(type, text, tree), penalties=penalties)


def _comment(text: str) -> Verdict:
    """Planning: a block that the environment would write. It ends before the first line that is not a comment."""
    lines = text.strip("\n").split("\n")
    kept = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    penalties = Penalties(extra_elements=_extra(len(lines) - len(kept)))
    return Verdict(compiles=True, rewritten=without_fake_lines("\n".join(kept)), penalties=penalties)


def _extra(count: int) -> float:
    return min(1.0, 0.02 * max(0, count))


def _prose(body: Sequence[ast.stmt]) -> dict[str, float]:
    prose = string(body[0]) if body else None
    return {
        "extra_elements": _extra(len(body) - 1),
        "not_a_string": 1.0 if prose is None else 0.0,
        "code_in_prose": 0.0 if prose is None else _extra(len(CODE_IN_PROSE.findall(prose))),
    }


def _callback(type: BlockType, tree: ast.Module) -> dict[str, float]:
    function = first_function(tree.body)
    call = next((call for node in tree.body if (call := registration(node, REGISTERS[type]))), None)
    penalties = {"shape": 0.0 if fit(type, tree.body)[1] else 1.0, "extra_elements": _extra(len(tree.body) - 2)}
    args, keywords = (call.args, call.keywords) if call is not None else ([], [])
    given = {keyword.arg: keyword.value for keyword in keywords} | dict(zip(("title", "callback"), args, strict=False))
    if call is not None and function is not None:
        name = given.get("callback")
        penalties["wrong_name"] = 0.0 if isinstance(name, ast.Name) and name.id == function else 2.0
    nodes = list(_walk(tree))
    if type is BlockType.EVALUATION:
        title = given.get("title")
        readable = isinstance(title, ast.Constant) and isinstance(title.value, str)
        penalties["title"] = 2.0 if not readable else 0.0 if _is_question(title) else 1.0
        penalties["assertions"] = 0.3 * sum(isinstance(node, ast.Assert) for node, _ in nodes)
    else:
        penalties["assertions"] = _assertions([(node, tried) for node, tried in nodes if isinstance(node, ast.Assert)])
        penalties["forbidden_calls"] = sum((_forbidden(node) for node, _ in nodes if isinstance(node, ast.Call)), 0.0)
    return penalties


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is inside a try statement."""
    nodes: list[tuple[ast.AST, bool]] = [(tree, False)]
    while nodes:
        node, tried = nodes.pop()
        yield node, tried
        tried = tried or isinstance(node, ast.Try | ast.TryStar)
        nodes.extend((child, tried) for child in ast.iter_child_nodes(node))


def _is_question(node: ast.expr | None) -> bool:
    """Whether a string literal, or the last part of an f-string, ends in a question mark."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[-1]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rstrip().endswith("?")


def _assertions(assertions: Sequence[tuple[ast.Assert, bool]]) -> float:
    if not assertions:
        return 0.5
    penalty = 0.2 * max(0, len(assertions) - 3)
    for node, tried in assertions:
        penalty += 0.3 if node.msg is None else 0.0 if _is_question(node.msg) else 0.2
        penalty += 0.2 if tried else 0.0
    return penalty


def _forbidden(call: ast.Call) -> float:
    if not isinstance(call.func, ast.Attribute):
        return 0.3 if isinstance(call.func, ast.Name) and call.func.id == "print" else 0.0
    owner, method = call.func.value, call.func.attr
    of_task = method == "add_evaluation" and isinstance(owner, ast.Attribute) and owner.attr == "task"
    while isinstance(owner, ast.Attribute):
        owner = owner.value
    through_other = not (isinstance(owner, ast.Name) and owner.id == "self")
    return (TASK_EVALUATION if of_task else FORBIDDEN_IN_ACTION.get(method, (0.0, 0.0)))[through_other]
