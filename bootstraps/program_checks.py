"""Scores a module that an agent has written, in a process that can only compute (weavegen/box/trial.py).

The module's text is never run where the check runs: a harness runs it in the confined process, calls it and gives back
plain data, which the check compares with what it wants.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

SECONDS = 4.0
LONGEST = 50_000
"""Characters of a module that are looked at."""


def program(harness: str, source: str, modules: Mapping[str, str]) -> str:
    """A program: the harness, with the text to be checked as SOURCE, and `modules` (names and texts) importable."""
    return f"""\
import sys, types
for NAME, TEXT in {dict(modules)!r}.items():
    MODULE = sys.modules[NAME] = types.ModuleType(NAME)
    MODULE.__path__ = []
    exec(compile(TEXT, NAME, "exec"), MODULE.__dict__)
    PARENT, _, CHILD = NAME.rpartition(".")
    if PARENT:
        setattr(sys.modules[PARENT], CHILD, MODULE)
SOURCE = {source[:LONGEST]!r}
{harness}"""


def scores(program: str, name: str, cases: Sequence[Any], judge: str) -> list[float]:
    """A score, 0 or 1, for each case (JSON values, 100 at most). A case that raises, or takes too long, has 0.

    The function `name` of the program gets `case["given"]`. `judge` is source that defines `holds(case, answer)`; it
    runs in a process of its own, and never sees anything of the program but its answers.
    """
    from weavegen.box.trial import evaluate_programs

    evaluator = f"""\
import json
from typing import Any
CASES = json.loads({json.dumps(cases)!r})
{judge}
def score(function, case):
    try:
        return float(holds(case, function(case["given"])) is True)
    except Exception:
        return 0.0
def evaluate(function):
    return [score(function, case) for case in CASES]
"""
    asked = {"name": name, "programs": [program], "tests": "", "evaluator": evaluator, "seconds": SECONDS}
    [verdict] = evaluate_programs(json.dumps(asked), SECONDS + 2)
    found = verdict["scores"] if verdict["success"] else []
    return found if len(found) == len(cases) else [0.0] * len(cases)
