"""What files written for weave-agent may use besides api.py, which is the text that the model reads first.

`install` adds it to the classes of api.py when a runner starts.
"""

import contextlib
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from weavegen.box import api
from weavegen.box.awaitable import AwaitableDict, AwaitableList, Ready, awaitable
from weavegen.box.plain import clean

WRITTEN = ("orientation", "debug", "backtrack", "expectation")
"""Types of blocks that `generate_block` writes: those that are not executed."""
MAX_ADDED = 64
"""Blocks that callbacks may add in one operation."""
MAX_PLANNED = 16
"""Ticks that an agent may imagine in a row."""
JSON_TYPES = {name: name for name in api.TYPES} | {"float": "number", "list": "array"}
"""Types of a schema, and their names in JSON Schema."""
check_keys, work_on = api.check_schema, api.Tree.run

added: list[dict[str, Any]] = []
"""Blocks that callbacks have added in the operation that runs."""
addable: tuple[str, ...] = ("error",)
"""Types of blocks that the callbacks of this operation may add."""


def install(tree: api.Tree) -> None:
    """Add what follows to the classes of api.py. `tree`: the trace's own."""
    api.call, api.check_schema = call, check_schema
    for owner, name in ((api.Tree, "view_board"), (api.Task, "run_evaluations")):
        setattr(owner, name, awaitable(getattr(owner, name)))
    for method in (add_block, add_error_block, generate_block, plan):
        setattr(api.Subagent, method.__name__, method)
    setattr(api.Subagent, "model_name", property(lambda self: self.tree.model_name))  # noqa: B010 - it is not declared
    setattr(api.Tree, "add_block", add_block)  # noqa: B010
    setattr(api.Subagent, "memory", SimpleNamespace(search=partial(search, tree)))  # noqa: B010
    api.Tree.run = run  # type: ignore[method-assign]


def call(callback: api.Callback, subagent: api.Subagent) -> Any:
    """What the callback gives. A coroutine is run to its end, in an event loop that leaves others as they are."""
    result = callback(subagent)
    if hasattr(result, "__await__") and not isinstance(result, Ready):
        asyncio = importlib.import_module("asyncio")
        with outside_loop(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(result)
    return result


def write(asked: dict[str, Any]) -> dict[str, Any]:
    """Have the model write a block. The runner replaces this function."""
    raise RuntimeError("the model can only write a block while an action runs")


def add_block(self: api.Subagent | api.Tree, block: dict[str, Any], context: str = "") -> dict[str, Any]:
    """Record an error or, in an observation view, an observation, after the block or view that runs. Return `block`.

    An error block does not make the action fail. `block` has the keys of weave-agent's blocks: type, and message or
    body; an observation also has a title. `context` is not used.
    """
    kind = block.get("type")
    if kind not in addable:
        raise ValueError(f"this callback can add a block of type {' or '.join(addable)}, not {kind!r}")
    text = next((block[key] for key in ("message", "observation", "body") if key in block), None)
    if not isinstance(text, str):
        raise ValueError("a block needs a text: {'type': 'error', 'message': '...'}")
    if len(added) >= MAX_ADDED:
        raise ValueError(f"callbacks may add {MAX_ADDED} blocks at once")
    added.append({"type": kind, "title": clean(str(block.get("title", "")), 200), "text": clean(text)})
    return block


def add_error_block(self: api.Subagent, error_message: str) -> None:
    """Record an error block after the block or view that runs."""
    add_block(self, {"type": "error", "message": str(error_message)})


def generate_block(
    self: api.Subagent,
    block_type: str,
    context: str = "",
    eval_questions: list[str] | tuple[str, ...] = (),
    weave_params: dict[str, Any] | None = None,
    hint: str = "",
) -> dict[str, Any]:
    """Have the model write a block of reasoning, which follows the running action's block. Return it as a dict.

    Candidates are chosen by `eval_questions`; without them, by those of the type. `hint` is added to the
    instruction. The trace is the context, and the job's settings decide how the block is searched: `context` and
    `weave_params` are not used. Raises RuntimeError outside an action.
    """
    if block_type not in WRITTEN:
        raise ValueError(f"a callback can have blocks written of the types {', '.join(WRITTEN)}, not {block_type!r}")
    questions = [clean(str(question), 1_000) for question in eval_questions][:16]
    return AwaitableDict(write({"type": block_type, "hint": clean(str(hint), 10_000), "questions": questions}))


def run(self: api.Tree, name: str) -> dict[str, Any] | None:
    """Let a subagent work on its task. What it returned also says its name, its children and its schema."""
    returned, subagent = work_on(self, name), self.agents[name]
    if returned is None:
        return None
    about = {"name": name, "children": list(subagent.children), "schema": subagent.schema}
    return AwaitableDict(about | returned)


def plan(self: api.Subagent, ticks: int = 1) -> None:
    """Imagine the next ticks: nothing is executed, and the model writes what would happen. Then the run goes on.

    An imagined action that returns to the caller is the end of the plan.
    """
    if not 0 < ticks <= MAX_PLANNED:
        raise ValueError(f"a plan has 1 to {MAX_PLANNED} ticks, not {ticks}")
    vars(self)["planned"] = ticks


def search(tree: api.Tree, text: str, before: float | None = None, limit: int = 3) -> list[dict[str, Any]]:
    """`self.memory.search`: the blocks that share the rarest words with a text, best first. A coroutine there.

    `before`: only blocks with a lower index. A long block needs more of such words.
    """
    blocks = [block for block in tree.blocks if before is None or block["index"] < before]
    asked, *held = [set(re.findall(r"\w+", one.lower())) for one in (text, *(block["body"] for block in blocks))]
    counts = Counter(word for words in held for word in words)
    scores = [sum(sorted(1 / counts[word] for word in asked & words)) / (len(words) + 1) ** 0.5 for words in held]
    ranked = sorted(zip(scores, blocks, strict=True), key=lambda pair: (pair[0], pair[1]["index"]), reverse=True)
    return AwaitableList(block for score, block in ranked[: max(limit, 0)] if score)


def check_schema(value: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise ValueError unless `value` satisfies `schema`, which may be a JSON Schema or have one for each key.

    What is nested is checked by jsonschema, where the job has this package.
    """
    is_whole = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
    whole = standard(schema if is_whole else {"properties": schema})
    rules = whole["properties"]
    asked = [*whole.get("required", rules), *(key for key in rules if key in value)]
    check_keys(value, {key: rules.get(key, {}) for key in asked})
    if not any(rule.keys() - {"type", "enum"} for rule in rules.values()):
        return
    try:
        jsonschema = importlib.import_module("jsonschema")
    except ImportError:
        return
    for error in jsonschema.Draft202012Validator(whole).iter_errors(value):
        raise ValueError(f"{error.json_path.removeprefix('$.')!r}: {error.message}")


def standard(rule: Any) -> Any:
    """A schema in the words of JSON Schema. It may be the name of a type alone. Types that have no name are ignored."""
    told = dict(rule) if isinstance(rule, dict) else {"type": rule}
    names = told.pop("type", [])
    known = [JSON_TYPES.get(str(name)) for name in (names if isinstance(names, list | tuple) else [names])]
    if known and None not in known:
        told["type"] = known if len(known) > 1 else known[0]
    if isinstance(properties := told.get("properties"), dict):
        told["properties"] = {key: standard(part) for key, part in properties.items()}
    if "items" in told:
        told["items"] = standard(told["items"])
    return told


@contextlib.contextmanager
def outside_loop() -> Iterator[None]:
    """Let the body start an event loop, even if a coroutine of one called it."""
    asyncio: Any = sys.modules.get("asyncio")
    loop = asyncio and asyncio._get_running_loop()
    if asyncio:
        asyncio._set_running_loop(None)
    try:
        yield
    finally:
        if asyncio:
            asyncio._set_running_loop(loop)
