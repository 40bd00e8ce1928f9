"""Checks what a worker accepts from a box. A runner that was tampered with can lie about its own step only.

The genuine runner (box/runner.py, box/plain.py) keeps well within these bounds.
"""

from typing import Any

import msgspec

from weavegen.errors import UsageError
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import Execute, Executed

MAX_NAME_CHARS = 2_000  # characters of the texts in NAMES
NAMES = ("title", "registered", "name", "parent", "working_directory", "type", "label", "not_tried")
"""Fields of an answer that are short texts."""
VALUES = ("value", "schema", "returned", "task")  # fields of an answer that hold JSON of callbacks
MAX_TEXT_CHARS = 150_000  # characters of any other text
MAX_VALUES = 2_500  # values nested in a value that a callback returned
MAX_DEPTH = 16
DELEGATES = ("research",)  # agents that an action may delegate to
MAX_ITEMS = 64  # views, titles, assertions, subagents; evaluations of each kind
MAX_QUESTIONS = 16  # questions about a block that an action asks the model to write
MAX_TIME_BUDGET = 1e9  # minutes
EVALUATED = Execute(op="evaluate")  # the operation whose results a trial may have


class InvalidAnswer(Exception):
    """The answer of a box is out of bounds. The message says why."""


def check_answer(executed: Executed, step: Execute) -> Executed:
    """Return the answer if it is a possible result of `step`. Raises InvalidAnswer."""
    limits = dict.fromkeys(("added", "registered", "views", "assertions", "subagents"), MAX_ITEMS)
    for name, limit in {**limits, "evaluations": 2 * MAX_ITEMS}.items():
        if len(getattr(executed, name)) > limit:
            raise InvalidAnswer(f"more than {limit} {name}")
    if (executed.claims and step.op != "evaluate") or len(executed.claims) > MAX_ITEMS:
        raise InvalidAnswer("claims that were not asked for")
    if step.op != "begin" and any(block.type == "observation" for block in executed.added):
        raise InvalidAnswer("an observation that no view added")
    if len(executed.trials) > (len(step.candidates) if step.op == "try" else 0):
        raise InvalidAnswer("trials that were not asked for")
    for trial in executed.trials:
        if trial.trials or not 0 <= trial.seconds <= MAX_TIME_BUDGET:
            raise InvalidAnswer("an invalid trial")
        check_answer(trial, EVALUATED)
    evaluations = list(executed.evaluations)
    for subagent in executed.subagents:
        if not 0 <= subagent.time_budget <= MAX_TIME_BUDGET:
            raise InvalidAnswer("an invalid time budget")
        if not 0 < subagent.block_size <= 10_000:
            raise InvalidAnswer("an invalid block size")
        if len(subagent.evaluations) > MAX_ITEMS:
            raise InvalidAnswer(f"more than {MAX_ITEMS} evaluations of a subagent")
        evaluations += subagent.evaluations
    if any(one.protected or one.cause is not None for one in evaluations):  # only the worker may set these
        raise InvalidAnswer("an evaluation that claims to be protected")
    check_waiting(executed, step)
    check_fields(executed)
    return executed


def check_fields(part: Any, name: str = "") -> None:
    """Check every text in an answer, and the values of its callbacks. `name`: name of the field."""
    if name in VALUES:
        check_value(part)
    elif isinstance(part, str):
        check_text(part, MAX_NAME_CHARS if name in NAMES else MAX_TEXT_CHARS)
    elif isinstance(part, msgspec.Struct):
        for field in part.__struct_fields__:
            check_fields(getattr(part, field), field)
    elif isinstance(part, tuple | dict):
        for item in (*part, *part.values()) if isinstance(part, dict) else part:
            check_fields(item, name)


def check_waiting(executed: Executed, step: Execute) -> None:
    """Check the names of subagents, and what the action waits for. Raises InvalidAnswer."""
    names = {subagent.name for subagent in executed.subagents}
    if len(names) < len(executed.subagents):
        raise InvalidAnswer("two subagents with the same name")
    may_wait = step.op in ("bootstrap", "run", "resume")
    waits = (executed.waits_for is not None, bool(executed.delegates), executed.writes is not None)
    if sum(waits) > may_wait:
        raise InvalidAnswer("this step can't wait, or it waits for more than one thing")
    if executed.writes is not None and len(executed.writes.questions) > MAX_QUESTIONS:
        raise InvalidAnswer(f"more than {MAX_QUESTIONS} questions about a block")
    if len(executed.delegates) > MAX_ITEMS or any(task.agent not in DELEGATES for task in executed.delegates):
        raise InvalidAnswer("too many tasks are delegated, or to an agent that is not allowed")
    if executed.waits_for == step.subagent:
        raise InvalidAnswer("a subagent can't wait for itself")
    if executed.waits_for not in {None, *names}:
        raise InvalidAnswer("the action waits for a subagent that does not exist")


def check_text(text: str, limit: int) -> None:
    """Raise InvalidAnswer unless Postgres can store the text and it has at most `limit` characters."""
    if len(text) > limit:
        raise InvalidAnswer(f"a text has {len(text):,} characters, more than the {limit:,} allowed")
    if "\x00" in text:
        raise InvalidAnswer("a text contains NUL")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidAnswer("a text is not valid Unicode") from None


def check_value(value: Any) -> None:
    """Raise InvalidAnswer unless it is a JSON value of bounded size and depth."""
    try:
        check_json(value, "a value", MAX_DEPTH, MAX_VALUES, MAX_TEXT_CHARS)
    except UsageError as error:
        raise InvalidAnswer(str(error)) from None
    if (size := len(msgspec.json.encode(value))) > 8 * MAX_TEXT_CHARS:
        raise InvalidAnswer(f"a value has {size:,} bytes")
