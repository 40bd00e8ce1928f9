"""Writes a missing test, evaluator or first version for a search, with errors."""

import ast
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.policies.dialogue import Conversation

FLAWS = {"prose": 0.08, "syntax": 0.08, "unknown": 0.08, "idle": 0.06}
"""Rates per message."""
_NAME = re.compile(r"The function is called (\w+)\.")
_ASKED = re.compile(r"Now write the (test|evaluator|first version)\.")
_SIGNATURE = re.compile(r"^def .*?:\n", re.DOTALL | re.MULTILINE)
_SAMPLES = {
    "str": "'the quick fox and the slow dog and the cat'", "int": "3", "float": "2.5", "bool": "True",
    "list[str]": "['pear', 'fig', 'apple', 'fig']", "list[int]": "[5, 3, 8, 3]", "list[float]": "[1.5, 4.0, 2.5]",
    "list": "[5, 3, 8, 3]", "dict": "{'a': 1, 'b': 2}",
}  # fmt: skip
"""An example argument of each type."""
_RESULTS = {
    "str": "str({first}).strip()", "int": "len(str({first}))", "float": "float(len(str({first})))",
    "bool": "bool({first})", "list": "str({first}).split()",
    "dict": "{{word: str({first}).split().count(word) for word in str({first}).split()}}",
}  # fmt: skip
"""Expressions of the first parameter, by the type of their value."""


@dataclass(frozen=True)
class Function:
    """What the task says about the function."""

    name: str
    parameters: dict[str, str]
    """Types of the parameters by name; str where the task does not say."""
    returns: str

    @property
    def line(self) -> str:
        parameters = ", ".join(f"{name}: {type}" for name, type in self.parameters.items())
        return f"def {self.name}({parameters}) -> {self.returns}:"

    @property
    def call(self) -> str:
        samples = (
            _SAMPLES.get(type, _SAMPLES.get(type.partition("[")[0], "'text'")) for type in self.parameters.values()
        )
        return f"function({', '.join(samples)})"


def write(conversation: "Conversation", chance: random.Random) -> str:
    """The piece that was requested last."""
    function = _function(conversation.task)
    asked = [match[1] for _, text in conversation.messages for match in _ASKED.finditer(text)]
    piece = asked[-1] if asked else "first version"
    source = {"test": _test, "evaluator": _evaluator, "first version": _first}[piece](function)
    flaw = chance.choices([None, *FLAWS], [1 - sum(FLAWS.values()), *FLAWS.values()])[0]
    thought = f"<think>The {piece} of {function.name}: as small as it can be.</think>\n"
    if flaw == "prose":
        return thought + f"The {piece} should call the function once and look at what comes back."
    if flaw == "syntax":
        source = source.replace("):", ")", 1)
    elif flaw == "unknown":
        source = source.replace("    return ", "    expect(0)\n    return ", 1)
    elif flaw == "idle" and piece == "test":
        source = "def test(function):\n    assert callable(function)\n"
    return f"{thought}```python\n{source}```"


def _function(task: str) -> Function:
    match = _NAME.search(task)
    name = match[1] if match else "function"
    signature = next((text for text in _SIGNATURE.findall(task) if text.startswith(f"def {name}(")), "")
    try:
        [node] = ast.parse(signature + "    pass").body
    except (SyntaxError, ValueError):
        return Function(name, {"text": "str"}, "str")
    assert isinstance(node, ast.FunctionDef)
    parameters = {
        argument.arg: ast.unparse(argument.annotation) if argument.annotation else "str"
        for argument in (*node.args.posonlyargs, *node.args.args)
    }
    return Function(name, parameters or {"text": "str"}, ast.unparse(node.returns) if node.returns else "str")


def _test(function: Function) -> str:
    return (
        "def test(function):\n"
        f"    answer = {function.call}\n"
        "    assert answer is not None, 'there is no answer'\n"
        f"    assert {function.call} == answer, 'it answers otherwise the second time'\n"
        "    return None\n"
    )


def _evaluator(function: Function) -> str:
    type = function.returns.partition("[")[0]
    right = f"isinstance({function.call}, {type})" if type in _RESULTS else "answer is not None"
    return (
        "def evaluate(function):\n"
        f"    answer = {function.call}\n"
        f"    right = {right}\n"
        "    return [1.0 if answer else 0.5, 1.0 if right else 0.0]\n"
    )


def _first(function: Function) -> str:
    first = next(iter(function.parameters))
    value = _RESULTS.get(function.returns.partition("[")[0], "str({first})").format(first=first)
    return f'{function.line}\n    """Return what is asked for, in the simplest way."""\n    return {value}\n'
