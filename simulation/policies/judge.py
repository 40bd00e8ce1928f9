"""The simulated evaluator: log odds of yes, from the flaws that it detects in a block."""

import ast
import math
import warnings
from functools import lru_cache

from simulation.policies.situation import Situation, stable

OPTION = math.log(0.05 / 0.95)
"""Log odds for the question whether the observation views should change."""

_METHODS = frozenset({
    "add_action", "add_evaluation", "add_observation_view", "remove_observation_view", "update_cache", "get_cache",
    "delete_cache", "return_to_caller", "run_evaluations",
})  # fmt: skip
"""Methods of a subagent. A call of any other method on `self` is a flaw."""
OVERLOOKED = 0.4
"""Share of the run-time flaws that the evaluator overlooks."""
_PROSE = ("orientation", "debug", "backtrack", "expectation")
_CALLBACK = {"action": "add_action", "evaluation": "add_evaluation"}


def log_odds(situation: Situation) -> float:
    """Log odds for any block: about 2 to 4 without a flaw, below 0 with one."""
    question = situation.question or ""
    if situation.type == "option" or "observation views be changed" in question:
        return OPTION
    if situation.type in _PROSE or situation.type in _CALLBACK or situation.type == "observation-inference":
        noise = stable(situation.body + question, -1.0, 1.0)
        return 3.0 + noise - faults(situation.type, situation.body)
    if situation.type in ("observation", "error", "outcome"):
        return 2.5 + stable(situation.body + question, -1.0, 1.0)
    # A text that a callback asks about: rather yes, but not the same for every text.
    return stable(situation.body[-4000:] + question, -1.0, 3.0)


@lru_cache(maxsize=4096)
def faults(type: str, body: str) -> float:
    """Log odds to subtract for the flaws of a block; 0 if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 5.5
    fake = 4.2 if "q :" in body or "q:" in body else 0.0
    if type in _PROSE:
        return fake + _prose(tree)
    if type in _CALLBACK:
        return fake + _callback(type, tree, body)
    return fake + 4.5 * (not tree.body) + _strange_calls(tree, body)


def seen(body: str) -> bool:
    """Whether the evaluator notices that a block will fail when it runs."""
    return stable(body.strip(), 0, 1) >= OVERLOOKED


def _prose(tree: ast.Module) -> float:
    first = tree.body[0] if tree.body else None
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return 5.0
    text = str(first.value.value)
    cost = 4.2 * (len(tree.body) > 1) + 4.2 * ("def " in text or "import " in text)
    cost += 2.5 * (len(text) > 1600)
    return cost + 3.5 * (len(text.strip()) < 20)


def _callback(type: str, tree: ast.Module, body: str) -> float:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    own = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == _CALLBACK[type]]
    if not functions or not own or len(own[0].args) < 2:
        return 5.5
    title, name = own[0].args[:2]
    cost = 4.2 * (len(tree.body) > 2) + _strange_calls(tree, body)
    if not isinstance(name, ast.Name) or name.id != functions[0].name:
        cost += 5.0
    assertions = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    if type == "evaluation":
        asked = isinstance(title, ast.Constant) and str(title.value).endswith("?")
        return cost + 4.2 * (not asked) + 4.2 * bool(assertions)
    if not assertions:
        cost += 4.2
    return cost + 4.2 * any(not _is_question(node.msg) for node in assertions)


def _is_question(message: ast.expr | None) -> bool:
    if isinstance(message, ast.JoinedStr) and message.values:
        message = message.values[-1]
    return isinstance(message, ast.Constant) and str(message.value).endswith("?")


def _strange_calls(tree: ast.Module, body: str) -> float:
    cost = 0.0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            cost += 4.2
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            invented = node.func.value.id == "self" and node.func.attr not in _METHODS
            cost += 5.0 * (invented and seen(body))
    return cost
