"""Simulates a model that improves functions: it changes the best version in its prompt, with errors.

It knows no instances and no scores except those in the prompt. Its texts are mutations: changed constants, and terms
that are added, dropped or taken from the other version, made of the function's own parameters. So scores rise by
selection, not because it knows the answers.
"""

import ast
import random
import re
from typing import TYPE_CHECKING

from simulation.policies import funsearch_pieces as pieces
from weavegen.kernel import prompts

if TYPE_CHECKING:
    from simulation.policies.dialogue import Conversation

FLAWS = {
    "syntax": 0.05, "endless": 0.02, "signature": 0.04, "shape": 0.04, "exit": 0.02, "import": 0.02, "print": 0.02,
    "prose": 0.03,
}  # fmt: skip
"""Rates per message."""
LONGEST = 1_500
"""Number of characters above which terms are dropped and not added."""
_IMPROVE, _PREPARE = (prompts.text(name).partition("{")[0] for name in ("funsearch", "funsearch_prepare"))
_VERSION = re.compile(r"^Version \d+, score (\S+):\n```python\n(.*?)\n```", re.DOTALL | re.MULTILINE)


def knows(conversation: "Conversation") -> bool:
    """Whether the task is to improve a function, or to prepare that."""
    return conversation.task.startswith((_IMPROVE, _PREPARE))


def write(conversation: "Conversation", seed: int, number: int) -> str:
    """A new version, or the requested piece."""
    chance = conversation.chance(seed, number)
    if conversation.task.startswith(_PREPARE):
        return pieces.write(conversation, chance)
    versions = [source for _, source in _VERSION.findall(conversation.task)]
    if not versions:
        return "I see no version to begin with."
    best, other = versions[-1], chance.choice(versions)
    if chance.random() < 0.15:
        best, other = other, best
    thought, source = mutated(best, other, chance)
    flaw = chance.choices([None, *FLAWS], [1 - sum(FLAWS.values()), *FLAWS.values()])[0]
    if flaw == "prose":
        return f"<think>{thought}</think>\nThe last version is good already; I would change its numbers a little."
    return f"<think>{thought}</think>\n```python\n{flawed(source, flaw)}\n```"


def flawed(source: str, flaw: str | None) -> str:
    """The function with one flaw in it."""
    head, _, body = source.partition("):")
    match flaw:
        case "syntax":
            return source.replace("return ", "return (", 1)
        case "endless":
            return source.replace("    return ", "    while True:\n        pass\n    return ", 1)
        case "signature":
            return f"{head}, weights):{body}"
        case "shape":
            return source.replace("    return ", "    return None\n    return ", 1)
        case "exit":
            return source.replace("    return ", "    import os\n    os._exit(0)\n    return ", 1)
        case "import":
            return "import numpy as np\n\n" + source
        case "print":
            return source.replace("    return ", "    print('score: 1000000')\n    return ", 1)
    return source


# ----------------------------------------------------------------------------------------------- mutations


def mutated(source: str, other: str, chance: random.Random) -> tuple[str, str]:
    """A description of the change, and the changed function. A function that is not a sum of terms stays."""
    tree, parts = _sum_of(source)
    if tree is None or parts is None:
        return "I can only tidy this up.", source
    terms, names = parts.terms(), parts.names
    moves = ["add", "add", "move", "move", "drop", "take", "replace"]
    if len(source) > LONGEST:
        moves = ["drop", "move"]
    thoughts = []
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        move = chance.choice(moves)
        if move == "drop" and len(terms) > 1:
            gone = terms.pop(chance.randrange(len(terms)))
            thoughts.append(f"The term {gone} may do harm: without it.")
        elif move == "move" and any(map(_NUMBER.search, terms)):
            at = chance.choice([at for at, term in enumerate(terms) if _NUMBER.search(term)])
            terms[at] = _moved(terms[at], chance)
            thoughts.append(f"Another number in {terms[at]}.")
        elif move == "take":
            other_sum = _sum_of(other)[1]
            new = chance.choice(other_sum.terms() if other_sum is not None else terms)
            terms += [new] if new not in terms else []
            thoughts.append(f"The other version has {new}, which may help here too.")
        elif move == "replace":
            terms = [_term(names, chance)]
            thoughts.append("Something quite different.")
        else:
            terms.append(_term(names, chance))
            thoughts.append(f"Nobody has tried {terms[-1]} yet.")
    parts.put(terms)
    return " ".join(thoughts), ast.unparse(tree)


_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w)")


class _Sum:
    """The value that a function returns, or the value of each element of the list that it returns."""

    def __init__(self, place: ast.Return | ast.ListComp, names: "_Names") -> None:
        self.place, self.names = place, names

    def terms(self) -> list[str]:
        value = self.place.value if isinstance(self.place, ast.Return) else self.place.elt
        right_terms: list[str] = []
        while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            right_terms.insert(0, ast.unparse(value.right))
            value = value.left
        assert value is not None
        return [ast.unparse(value), *right_terms]

    def put(self, terms: list[str]) -> None:
        value = ast.parse(" + ".join(f"({term})" for term in terms), mode="eval").body
        if isinstance(self.place, ast.Return):
            self.place.value = value
        else:
            self.place.elt = value


class _Names:
    """The material of terms: names of numbers, and names of tuples with their length."""

    def __init__(self, numbers: list[str], tuples: dict[str, int]) -> None:
        self.numbers, self.tuples = numbers, tuples


def _sum_of(source: str) -> tuple[ast.Module | None, _Sum | None]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None, None
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    if function is None or not isinstance(function.body[-1], ast.Return) or function.body[-1].value is None:
        return tree, None
    place = function.body[-1]
    parameters = [argument.arg for argument in function.args.args]
    docstring = ast.get_docstring(function) or ""
    tuples = {
        name: int(found[1]) for name in parameters if (found := re.search(rf"{name}: a tuple of (\d+)", docstring))
    }
    if isinstance(place.value, ast.ListComp) and isinstance(place.value.generators[0].target, ast.Name):
        each = place.value.generators[0]
        taken = ast.unparse(each.iter)
        numbers = [ast.unparse(each.target), *(name for name in parameters if name != taken)]
        return tree, _Sum(place.value, _Names(numbers, {}))
    if not re.search(r"^Returns a number", docstring, re.MULTILINE):
        return tree, None
    return tree, _Sum(place, _Names([name for name in parameters if name not in tuples], tuples))


def _term(names: _Names, chance: random.Random) -> str:
    """A new term of a function's value."""
    weight = chance.choice([-10, -5, -3, -2, -1, 1, 1, 2, 3, 5, 10])
    if names.tuples and (not names.numbers or chance.random() < 0.7):
        name, length = chance.choice(sorted(names.tuples.items()))
        a, b, c = (f"{name}[{chance.randrange(length)}]" for _ in range(3))
        digit, count = chance.randrange(3), chance.randrange(length + 1)
        return f"{weight} * " + chance.choice(
            [
                f"{name}.count({digit})",
                f"({name}.count({digit}) == {count})",
                f"({name}.count({digit}) % 2)",
                f"(sum({name}) % 3)",
                f"(({a} * {b} + {c}) % 3)",
                f"(({a} + {b}) % 3)",
                f"(({a} - {b}) % 3)",
                f"({a} == {b})",
                a,
            ]
        )
    a = chance.choice(names.numbers)
    others = [name for name in names.numbers if name != a]
    value = f"({a} - {chance.choice(others)})" if others and chance.random() < 0.7 else a
    low = chance.choice([1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 50])
    return f"{weight} * " + chance.choice(
        [
            value,
            f"{value} ** 2 / 100",
            f"({value} < {low})",
            f"({low} <= {value} < {low + chance.choice([5, 10, 15, 20])})",
            f"({value} == 0)",
            f"({value} % {low})",
            f"abs({value} - {low}) / 10",
        ]
    )


def _moved(term: str, chance: random.Random) -> str:
    """A term with one of its numbers changed. Indices of tuples stay."""
    matches = [match for match in _NUMBER.finditer(term) if term[match.start() - 1 : match.start()] != "["]
    if not matches:
        return term
    match = chance.choice(matches)
    number = float(match[0])
    moved = chance.choice([number + 1, max(number - 1, 0), number * 2, round(number / 2, 2), number + 5, number * 10])
    text = f"{moved:g}" if moved < 1e6 else match[0]
    if "." in text and "%" in term:
        text = match[0]  # a modulus stays an integer
    return term[: match.start()] + text + term[match.end() :]
