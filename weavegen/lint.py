"""What is wrong with a candidate: does it compile, which penalties, and what is left after rewriting.

The penalties are weave-agent's (WEAVE section 6). They are subtracted for selection only.
"""

import ast
import re
import warnings

from weavegen.blocks import CALLBACK, PROSE, BlockType
from weavegen.rewrite import registration, rewrite
from weavegen.steps import Penalties, Verdict

CODE_IN_PROSE = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import |def \w+\(|class \w+|return\b|for \w+ in .*:$|if .*:$)"
    r"|\bprint\(|\bself\.(?:add|agent|task|tools)|\bsubagent\.\w+\(|\[/?INST\]|```",
    re.MULTILINE,
)
REGISTERS = {BlockType.ACTION: "add_action", BlockType.EVALUATION: "add_evaluation"}
FORBIDDEN_IN_ACTION = {"add_evaluation": (0.5, 0.3), "add_observation_view": (0.5, 0.3)}
"""Method: (penalty through self, penalty through another name for the subagent)."""
TASK_EVALUATION = (2.0, 1.0)


def syntax_error(text: str) -> str | None:
    """Why `text` is no legal part of a trace, or None where it is.

    Stricter than Python in two points, because the whole trace must compile as one file: no `__future__`
    import (legal only at a file's top) and no `global` outside a function (other blocks use the name).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
            compile(tree, "<block>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    except (ValueError, OverflowError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return "SyntaxError: a __future__ import is not allowed inside a trace"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and _has_global(node):
            return "SyntaxError: global is not allowed outside a function"
    return None


def _has_global(node: ast.AST) -> bool:
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    return isinstance(node, ast.Global) or any(
        _has_global(child) for child in ast.iter_child_nodes(node) if not isinstance(child, scopes)
    )


def compiles(text: str) -> bool:
    """Whether `text` may stand in a trace as code."""
    return syntax_error(text) is None


def lint(type: BlockType, text: str, *, tokens: int = 0, after_debug: bool = False) -> Verdict:
    """Check one candidate of `tokens` sampled tokens, and cut it down to its legal structure."""
    error = syntax_error(text)
    length = max(0, tokens - 96) * 0.5 / 672 if after_debug else 0.0
    if error is not None:
        return Verdict(
            compiles=False,
            error=error,
            rewritten=text,
            penalties=Penalties(syntax=2.0, length_after_debug=length),
        )
    tree = _parse(text)
    if type in PROSE:
        penalties = _prose(tree)
    elif type in CALLBACK:
        penalties = _callback(type, tree)
    else:
        penalties = {}
    return Verdict(
        compiles=True,
        rewritten=rewrite(type, text, tree),
        penalties=Penalties(length_after_debug=length, **penalties),
    )


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _extra(count: int) -> float:
    return min(1.0, 0.02 * max(0, count))


def _prose(tree: ast.Module) -> dict[str, float]:
    first = tree.body[0] if tree.body else None
    prose = first.value.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
    is_string = isinstance(prose, str)
    return {
        "extra_elements": _extra(len(tree.body) - 1),
        "not_a_string": 0.0 if is_string else 1.0,
        "code_in_prose": _extra(len(CODE_IN_PROSE.findall(prose))) if isinstance(prose, str) else 0.0,
    }


def _callback(type: BlockType, tree: ast.Module) -> dict[str, float]:
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    call = next((call for node in tree.body if (call := registration(node, REGISTERS[type]))), None)
    exact = (
        len(tree.body) == 2 and tree.body[0] is function and registration(tree.body[1], REGISTERS[type]) is call
    )
    penalties = {
        "shape": 0.0 if exact and call is not None else 1.0,
        "extra_elements": _extra(len(tree.body) - 2),
    }
    if call is not None and function is not None:
        name = call.args[1] if len(call.args) > 1 else None
        penalties["wrong_name"] = 0.0 if isinstance(name, ast.Name) and name.id == function.name else 2.0
    if type is BlockType.EVALUATION:
        title = call.args[0] if call is not None and call.args else None
        readable = isinstance(title, ast.Constant) and isinstance(title.value, str)
        penalties["title"] = 2.0 if not readable else 0.0 if _is_question(title) else 1.0
        penalties["assertions"] = 0.3 * sum(isinstance(node, ast.Assert) for node in ast.walk(tree))
    else:
        penalties["assertions"] = _assertions(tree)
        penalties["forbidden_calls"] = _forbidden_calls(tree)
    return penalties


def _is_question(node: ast.expr | None) -> bool:
    """Whether a literal ends as a question; of an f-string its last literal part counts."""
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[-1]
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.rstrip().endswith("?")


def _assertions(tree: ast.Module) -> float:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    if not found:
        return 0.5
    tried = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.Try) for node in ast.walk(outer)}
    penalty = 0.2 * max(0, len(found) - 3)
    for node in found:
        if node.msg is None:
            penalty += 0.3
        elif not _is_question(node.msg):
            penalty += 0.2
        if id(node) in tried:
            penalty += 0.2
    return penalty


def _forbidden_calls(tree: ast.Module) -> float:
    penalty = 0.0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            penalty += 0.3
        elif isinstance(node.func, ast.Attribute):
            owner = node.func.value
            of_task = isinstance(owner, ast.Attribute) and owner.attr == "task"
            root: ast.expr = owner
            while isinstance(root, ast.Attribute):
                root = root.value
            through_other = int(not (isinstance(root, ast.Name) and root.id == "self"))
            if of_task and node.func.attr == "add_evaluation":
                penalty += TASK_EVALUATION[through_other]
            elif node.func.attr in FORBIDDEN_IN_ACTION:
                penalty += FORBIDDEN_IN_ACTION[node.func.attr][through_other]
    return penalty
