"""This program is written while it runs, and I am the one who writes it.

What I read is one long Python file, a trace. It grows a block at a time; each block is executed as soon as it
is written, in a live process that remembers everything: what one block defines or imports, later blocks can use.
`agent` is the tree of subagents, `self` the subagent whose turn it is. The working directory is `/app`.

I work in ticks. A tick is made of these blocks, in this order:

    task-reminder          the problem map: who has which task, and how far it has come
    observation            one for every observation view, like the windows of a desktop
    orientation            I think, in one triple-quoted string: what happened, what does it mean, what is next?
    action                 I act: one function and its registration
    expectation            I say, in one triple-quoted string, what I would see if the action has worked
    option                 a yes/no question: should my observation views change?
    observation-inference  if so, I add and remove views
    evaluation             I check: one function and its registration
    outcome                a table of what the action and every evaluation gave

An action that raises is followed by an error block with the traceback, a debug block in which I reason about the
cause, and another attempt. Callbacks take one argument, the subagent. The two blocks that I program in look so:

    def action_measure_the_log(self):
        size = os.path.getsize("run.log")
        assert size > 0, "Is there anything in the log?"
        return size

    self.add_action("Measure the log", action_measure_the_log)

    def eval_log_is_short(self):
        return os.path.getsize("run.log") < 10_000

    self.add_evaluation("Is the log still short?", eval_log_is_short)

An assertion's message, and an evaluation's title, is a question whose answer should be yes. What only a reader
can judge, a callback asks the model itself; this gives the probability of yes for each text:

    simple_evaluate_outputs(make_simple_score_prompt("Does the story have an ending?"), [story])

When the task is done, or can't be done, an action calls `self.return_to_caller(value)` with what the task's
schema asks for. A part of the task can be given to a subagent, whose ticks then come before mine go on:

    agent.subagent("counter", self.name, "Count the errors in the log", {"errors": "integer"}, 10)
    errors = agent.run("counter")["errors"]

What must be looked up in earlier traces and in documents, a researcher reads for me. I get a summary:

    summary = agent.research("Which opening moves have won against this opponent?", "I play X, on 3x3.")
"""

import json
import time
from collections.abc import Callable
from typing import Any

Callback = Callable[["Subagent"], Any]
"""A function of one argument, the subagent."""

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "float": (int, float),
    "list": list,
    "array": list,
    "object": dict,
    "null": type(None),
}


def check_schema(value: dict[str, Any], schema: dict[str, Any]) -> None:
    """Raise ValueError unless `value` has every key of `schema`, with a value of its type.

    A schema gives each key a type, `{"moves": "integer"}`, or more: `{"result": {"enum": ["won", "lost"]}}`.
    """
    for key, rule in schema.items():
        rule = rule if isinstance(rule, dict) else {"type": rule}
        if key not in value:
            raise ValueError(f"{key!r} is missing: the schema asks for {json.dumps(schema)}")
        names = rule.get("type", [])
        types = [TYPES.get(name, object) for name in ([names] if isinstance(names, str) else names)]
        is_number_for_bool = isinstance(value[key], bool) and bool not in types and object not in types
        if types and (is_number_for_bool or not any(isinstance(value[key], t) for t in types)):
            raise ValueError(f"{key!r} is {value[key]!r}, but the schema asks for {names}")
        if "enum" in rule and value[key] not in rule["enum"]:
            raise ValueError(f"{key!r} is {value[key]!r}, but the schema asks for one of {rule['enum']}")


def call(callback: Callback, subagent: "Subagent") -> Any:
    """What the callback gives; a coroutine is run to its end."""
    result = callback(subagent)
    if hasattr(result, "__await__"):
        import asyncio

        result = asyncio.run(result)
    return result


def work(name: str) -> None:
    """Write ticks of a subagent until it returns or its time is up. What runs this file puts that here."""
    raise RuntimeError("Only an action that is being carried out can run a subagent.")


def delegate(asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Have other agents do tasks, side by side. What runs this file puts that here."""
    raise RuntimeError("Only an action that is being carried out can ask for another agent.")


def register(kind: str, title: str, callback: Callback, **more: Any) -> dict[str, Any]:
    nameless = kind != "observation" and getattr(callback, "__name__", "") == "<lambda>"
    if not isinstance(title, str) or not callable(callback) or nameless:
        raise TypeError("I register a title, which is a string, and a function of one argument that has a name.")
    return {"type": kind, "title": title, "callback": callback, **more}


class Task:
    """What a subagent is to do, and the evaluations that tell whether it is done."""

    def __init__(self, subagent: "Subagent", description: str):
        self.subagent = subagent
        self.description = description
        self.evaluations: list[dict[str, Any]] = []

    def add_evaluation(self, title: str, callback: Callback, **protected: Any) -> None:
        """Check this after every tick. The result is returned to the caller under the callback's name."""
        self.evaluations.append(register("evaluation", title, callback, **protected))

    def run_evaluations(self) -> dict[str, Any]:
        """Every evaluation's result by the name of its callback; ERROR where it raised."""
        results = {}
        for evaluation in list(self.evaluations):
            name = getattr(evaluation["callback"], "__name__", evaluation["title"])
            try:
                results[name] = call(evaluation["callback"], self.subagent)
            except Exception:  # noqa: BLE001 - one broken check must not hide the others
                results[name] = "ERROR"
        return results


class Tick:
    """One round: at most one action, and the evaluations that check it."""

    def __init__(self, index: int):
        self.tick_id = index
        self.action: dict[str, Any] | None = None
        self.evaluations: list[dict[str, Any]] = []


class Subagent:
    """A worker with a task, a time budget and windows on the world. In callbacks it is called `self`."""

    def __init__(
        self, tree: "Tree", parent: str | None, name: str, description: str, schema: dict[str, Any], time_budget: float
    ):
        self.tree, self.parent, self.name, self.schema = tree, parent, name, schema
        self.children: list[str] = []
        self.time_budget = time_budget  # minutes
        self.end_time = time.time() + time_budget * 60
        self.task = Task(self, description)
        self.current_tick = Tick(0)
        self.observation_views: list[dict[str, Any]] = []
        self.tools: dict[str, Any] = {}
        self.cache: dict[str, Any] = {}
        self.block_size = 768  # tokens that I may write in a block: 768, 384 or 192
        self.completed = False
        self.returned: dict[str, Any] | None = None

    @property
    def context(self) -> str:
        """The last 60 blocks as text."""
        blocks = self.tree.blocks[-60:]
        return "".join(f"#startblock type: {b['type']}\n{b['body']}\n#endblock\n" for b in blocks)

    def add_action(self, title: str, callback: Callback) -> None:
        """Do this now. A tick has one action: the last one registered is the one that is run."""
        self.current_tick.action = register("action", title, callback)

    def add_evaluation(self, title: str, callback: Callback) -> None:
        """Check at the end of this tick whether its action has worked. The callback returns True if so."""
        self.current_tick.evaluations.append(register("evaluation", title, callback))

    def add_observation_view(self, title: str, callback: Callback, tool: str | None = None) -> None:
        """Show what the callback returns before every tick. There is room for eight views."""
        if len(self.observation_views) >= 8:
            raise ValueError("There are eight observation views already: remove one before you add another.")
        self.observation_views.append(register("observation", title, callback, tool=tool))

    def remove_observation_view(self, title: str) -> None:
        """Close a view. The view of an open tool stays until the tool is closed."""
        for view in [view for view in self.observation_views if view["title"] == title]:
            if view["tool"] in self.tools:
                raise ValueError(f"{title!r} belongs to the open tool {view['tool']!r}: close the tool instead.")
            self.observation_views.remove(view)

    def update_cache(self, key: str, value: Any) -> None:
        """Remember a value for later ticks."""
        self.cache[key] = value

    def get_cache(self, key: str) -> Any:
        return self.cache.get(key)

    def delete_cache(self, key: str) -> None:
        self.cache.pop(key, None)

    def return_to_caller(self, value: dict[str, Any]) -> None:
        """Finish the task. `value` and the results of the task's evaluations must satisfy the schema."""
        value = {**value, **self.task.run_evaluations()}
        check_schema(value, self.schema)
        self.returned, self.completed = value, True


class Tree:
    """All subagents by name, and the trace that they write together."""

    def __init__(self, model_name: str, time_budget: float):
        self.model_name = model_name
        self.time_budget = time_budget  # minutes
        self.agents: dict[str, Subagent] = {}
        self.blocks: list[dict[str, Any]] = []

    def subagent(
        self, name: str, parent: str | None, description: str, schema: dict[str, Any], time_budget: float
    ) -> Subagent:
        """Define a subagent with a part of the problem and of the time (minutes)."""
        if not name.isprintable() or len(name) > 100:
            raise ValueError("The name of a subagent is one line of at most 100 characters.")
        if name in self.agents or len(self.agents) >= 64:
            raise ValueError(f"There is a subagent {name!r} already, or there are 64: use one of them.")
        subagent = Subagent(self, parent, name, description, schema, time_budget)
        if parent is not None:
            self.agents[parent].children.append(name)
        self.agents[name] = subagent
        return subagent

    def run(self, name: str) -> dict[str, Any] | None:
        """Let a subagent work on its task, and give what it returned: None if its time was up before that."""
        subagent = self.agents[name]
        if subagent.completed:
            raise ValueError(f"{name!r} has returned already: define another subagent.")
        subagent.end_time = time.time() + subagent.time_budget * 60
        work(name)
        return subagent.returned

    def research(self, task: str | list[str], context: str = "") -> Any:
        """What a researcher found out about a task, as text; of a list of tasks, done side by side, a list."""
        tasks = [task] if isinstance(task, str) else task
        asked = [{"agent": "research", "task": {"task": one, "context": context}, "label": one[:60]} for one in tasks]
        returned = [one["returned"] or {"summary": "", "error": one["error"]} for one in delegate(asked)]
        found = [one["summary"] or f"Nothing was found: {one['error']}" for one in returned]
        return found[0] if isinstance(task, str) else found

    def current_block_index(self) -> int:
        """The index of the block that is being written."""
        return len(self.blocks)

    def find_last_block_of_type(self, block_type: str) -> dict[str, Any] | None:
        """The newest block of a type, as a dict with type, index and body; None if there is none."""
        return next((block for block in reversed(self.blocks) if block["type"] == block_type), None)

    def view_board(self, root: str = "main") -> str:
        """The problem map from `root` down: every task, what its evaluations say, what time it has left."""

        def describe(subagent: Subagent) -> dict[str, Any]:
            return {
                "name": subagent.name,
                "description": subagent.task.description,
                "evaluations": subagent.task.run_evaluations(),
                "time_remaining": round(subagent.end_time - time.time()),
                "completed": subagent.completed,
                "schema": subagent.schema,
                **{child: describe(self.agents[child]) for child in subagent.children},
            }

        from pprint import pformat  # its imports would take a tenth of every box's memory

        return pformat({root: describe(self.agents[root])}, sort_dicts=False)
