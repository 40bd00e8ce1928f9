"""What a worker accepts from a box. A runner that was tampered with may lie about its own step, no more.

The runner (runner.py, plain.py) keeps well within these bounds. Whatever is outside them was not said by it.
"""

import math
from typing import Any

import msgspec

from weavegen.kernel.steps import Execute, Executed

NAME = 2_000
"""Characters of a title, a name or a directory."""
TEXT = 150_000
"""Characters of any other text."""
NODES = 2_500
"""Values inside one that a callback returned."""
DEPTH = 16
DELEGATES = ("research",)
"""Agents that an action may ask for."""
MOST = 64
"""Views, titles, assertions, subagents; evaluations of each kind."""
INTEGER = 2**63
FINITE = 1e9
"""Minutes of a time budget at most."""


class Unacceptable(Exception):
    """The text says what of the answer is."""


def accept(executed: Executed, step: Execute) -> Executed:
    """The answer itself, if it is one that `step` can have. Raises Unacceptable."""
    limits = {"registered": MOST, "views": MOST, "assertions": MOST, "subagents": MOST, "evaluations": 2 * MOST}
    for name, most in limits.items():
        if len(getattr(executed, name)) > most:
            raise Unacceptable(f"more than {most} {name}")
    plain_text(executed.output, TEXT)
    for name in (*executed.registered, executed.working_directory):
        plain_text(name, NAME)
    values = [executed.value]
    failures = [executed.error]
    for view in executed.views:
        plain_text(view.title, NAME)
        plain_text(view.text, TEXT)
        failures.append(view.error)
    for assertion in executed.assertions:
        plain_text(assertion.question, TEXT)
    evaluations = list(executed.evaluations)
    for subagent in executed.subagents:
        for text, most in ((subagent.name, NAME), (subagent.parent, NAME), (subagent.description, TEXT)):
            plain_text(text or "", most)
        if not 0 <= subagent.time_budget <= FINITE:
            raise Unacceptable("a time budget that is none")
        if not 0 < subagent.block_size <= 10_000:
            raise Unacceptable("a block size that is none")
        if len(subagent.evaluations) > MOST:
            raise Unacceptable(f"more than {MOST} evaluations of a subagent")
        evaluations += subagent.evaluations
        values += [subagent.schema, subagent.returned]
    for evaluated in evaluations:
        plain_text(evaluated.title, NAME)
        values.append(evaluated.value)
        failures.append(evaluated.error)
    for failure in failures:
        if failure is not None:
            plain_text(failure.type, NAME)
            plain_text(failure.message, TEXT)
            plain_text(failure.traceback, TEXT)
    for value in values:
        plain_value(value)
    if len({subagent.name for subagent in executed.subagents}) < len(executed.subagents):
        raise Unacceptable("two subagents of one name")
    if executed.delegates:
        if step.op not in ("bootstrap", "run", "resume") or executed.waits_for is not None:
            raise Unacceptable("a step that can't wait for other agents does")
        if len(executed.delegates) > MOST or any(one.agent not in DELEGATES for one in executed.delegates):
            raise Unacceptable("it asks for an agent that it may not ask for")
        for asked in executed.delegates:
            plain_text(asked.label, NAME)
            plain_value(asked.task)
    waits_for = executed.waits_for
    if waits_for is not None:
        if step.op not in ("bootstrap", "run", "resume") or waits_for == step.subagent:
            raise Unacceptable("a step that can't wait for a subagent does")
        if waits_for not in {subagent.name for subagent in executed.subagents}:
            raise Unacceptable("it waits for a subagent that there is not")
    return executed


def plain_text(text: str, most: int) -> None:
    """Raise Unacceptable unless it is a text that Postgres can hold, of at most so many characters."""
    if len(text) > most:
        raise Unacceptable(f"a text of {len(text):,} characters: {most:,} are allowed")
    if "\x00" in text:
        raise Unacceptable("a text with NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unacceptable("a text that is no Unicode") from None


def plain_value(value: Any) -> None:
    """Raise Unacceptable unless it is a JSON value of bounded size and depth."""
    left = NODES
    waiting: list[tuple[Any, int]] = [(value, 0)]
    for one, depth in waiting:
        left -= 1
        if left < 0 or depth > DEPTH:
            raise Unacceptable("a value with too many parts, or too deep")
        if isinstance(one, str):
            plain_text(one, TEXT)
        elif isinstance(one, int):
            if not -INTEGER <= one < INTEGER:
                raise Unacceptable("a number of more than 64 bits")
        elif isinstance(one, float):
            if not math.isfinite(one):
                raise Unacceptable("a number that is none")
        elif isinstance(one, dict | list):
            if len(one) > left:
                raise Unacceptable("a value with too many parts")
            if isinstance(one, dict):
                for key in one:
                    plain_text(key, NAME)
                waiting += [(part, depth + 1) for part in one.values()]
            else:
                waiting += [(part, depth + 1) for part in one]
    size = len(msgspec.json.encode(value))
    if size > 8 * TEXT:
        raise Unacceptable(f"a value of {size:,} bytes")
