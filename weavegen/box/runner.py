"""The main loop of the environment process: executes blocks and callbacks, and keeps the trace's live state."""

import builtins
import contextlib
import json
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from json import dumps
from typing import Any

from weavegen.box import api, calls, grounded, guard, mcp, trial, trying, weave, weave_agent
from weavegen.box.importing import import_on_demand, new_tree
from weavegen.box.plain import clean, failure, plain, remember_source, show, size
from weavegen.box.server import SocketServer

MAX_VALUES_CHARS = 160_000
"""Characters in the values of all evaluations of an operation. Later values are shortened."""
MAX_DELEGATED_TASKS = 16
"""Tasks that an action may delegate at once."""
MAX_TASK_CHARS = 100_000  # of a task that an action delegates, and of its context
MAX_REPORTED = 64
"""Maximum number each of evaluations, subagents and titles in the result of an operation."""
MAX_CLAIM_CHARS = 100_000
"""Characters of a variable that a protected evaluation asks for, as JSON."""


class Failed(Exception):
    """Model-written code raised `error` in `stage`."""

    def __init__(self, stage: str, error: BaseException):
        super().__init__(stage)
        self.stage, self.error = stage, error


class TickRestarted(BaseException):
    """Raised in an action that waits for a subagent when its tick is started again. The action never resumes."""


class Runner:
    """The live state of a trace, and the operations on it."""

    def __init__(self, spec: dict[str, Any], server: SocketServer, output: guard.OutputCapture):
        self.server, self.output = server, output
        self.clock = guard.Clock()
        self.pid = os.getpid()
        self.step_id = self.ticks = 0
        self.subagent = ""
        """Name of the subagent whose operation runs."""
        self.waiting: list[str] = []
        """Subagents whose actions wait, the outermost first."""
        self.postponed: list[dict[str, Any]] = []
        """At most one operation, which can run only after the waiting actions have ended."""
        self.acts = False
        """Whether an action is running. Only an action may call a subagent."""
        self.labels = grounded.Labels()
        self.app, self.in_image = str(spec["app"]), spec["user"] is not None
        self.tree, self.current, names = new_tree(spec["args"])
        self.tree.blocks = server.blocks
        self.mock: api.Subagent | None = self.current
        """The subagent that the bootstrap file calls `self`. `bootstrap` merges it into main."""
        self.module = types.ModuleType("__main__")
        self.module.__dict__.update(names)
        self.operations: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
            "bootstrap": self.bootstrap, "begin": self.begin, "list": self.list_views, "run": self.run,
            "resume": self.resume, "evaluate": self.evaluate, "call": self.call_function, "tool": self.call_function,
            "tools": self.list_tools, "trial": self.trial, "try": self.try_candidates,
        }  # fmt: skip
        self.latest: dict[int, tuple[dict[str, Any], ...]] = {}
        """Latest results of the task evaluations, by the id() of the subagent."""
        weave_agent.install(self.tree)
        trying.install()
        weave.request = self.request
        api.work, api.delegate, weave_agent.write = self.work, self.delegate, self.write
        calls.namespace = self.module.__dict__
        mcp.configured = spec.get("mcp_servers", {})
        mcp.ask_worker = lambda request: str(self.request("tool", request))
        mcp.deadline = lambda: self.clock.deadline

    def serve(self) -> dict[str, Any]:
        """Execute operations. Returns only while an action waits: the `resume` operation of that action."""
        depth = len(self.waiting)
        while True:
            op = self.postponed.pop() if self.postponed else self.server.jobs.get()
            if depth and op["subagent"] in self.waiting:
                if op["op"] == "resume" and op["subagent"] == self.waiting[-1]:
                    return op
                self.postponed.append(op)
                raise TickRestarted
            self.step_id = int(op["step_id"])
            result = self.execute(op)
            if not self.postponed:  # else the worker no longer waits for this step
                self.server.finish(self.step_id, result)

    def execute(self, op: dict[str, Any]) -> dict[str, Any]:
        """Execute an operation and return a `steps.Executed`. Every exception becomes its `error`."""
        self.output.take()  # discard the output since the last operation
        acts = op["op"] == "bootstrap" or op.get("type") == "action"
        self.enter(op["subagent"], grounded.Labels(), acts=acts, shows=op["op"] == "begin")
        self.result: dict[str, Any] = {}
        result = self.result
        try:
            if self.mock is None and op["subagent"] not in self.tree.agents:
                raise RuntimeError(f"there is no subagent {op['subagent']!r}: {REBUILT_DIFFERENTLY}")
            with self.clock.limit(float(op["seconds"])):
                self.operations[op["op"]](op, result)
        except BaseException as error:  # noqa: BLE001 - even SystemExit is only a callback's exception
            self.clock.stop()
            failed = error if isinstance(error, Failed) else Failed("process", error)
            result["error"] = failure(failed.error, failed.stage, self.app)
        return self.report(result)

    def enter(self, subagent: str, labels: grounded.Labels, *, acts: bool, shows: bool = False) -> None:
        """Prepare the shared namespace for an operation of `subagent`. `shows`: whether it shows observation views."""
        weave_agent.addable = ("error", "observation") if shows else ("error",)
        self.subagent, self.labels, self.acts = subagent, labels, acts
        mock = self.mock if subagent == "main" else None
        agents = self.tree.agents if isinstance(self.tree.agents, dict) else {}  # a callback may have replaced it
        self.current = mock or agents.get(subagent) or self.current
        sys.modules["__main__"] = self.module
        known = {"agent": self.tree, "self": self.current, "__builtins__": builtins, grounded.NAME: labels.ground}
        self.module.__dict__.update(known)

    def report(self, result: dict[str, Any]) -> dict[str, Any]:
        """Add the fields that every operation reports to a result."""
        try:
            result["subagents"] = self.subagents()
        except Exception as error:  # noqa: BLE001 - a callback may have broken the tree
            result.setdefault("error", failure(error, "process", self.app))
        result["assertions"] = self.labels.take()
        result["added"] = list(weave_agent.added)
        weave_agent.added.clear()
        result["working_directory"] = working_directory()
        result["output"] = clean(self.output.take())
        return result

    def work(self, name: str) -> None:
        """Let the running action wait while the model writes the ticks of a subagent."""
        if name in (*self.waiting, self.subagent):
            raise ValueError(f"{name!r} is at work already.")
        self.wait({"waits_for": name})

    def delegate(self, asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Let other agents do tasks in traces of their own. Returns a `steps.Delegated` for each task."""
        if not 0 < len(asked) <= MAX_DELEGATED_TASKS:
            raise ValueError(f"Ask for at least one task, and for {MAX_DELEGATED_TASKS} at once at most.")
        for one in asked:
            for name, text in one["task"].items():  # the worker ends a process that sends anything else
                if not isinstance(text, str) or len(text) > MAX_TASK_CHARS or (name == "task" and not text.strip()):
                    raise ValueError(f"The {name} must be text, and have {MAX_TASK_CHARS:,} characters at most.")
                one["task"][name] = clean(text, MAX_TASK_CHARS)
            one["label"] = clean(one["label"])
        return list(json.loads(self.wait({"delegates": asked})["source"]))

    def write(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Let the running action wait while the model writes a block. Returns the block as a dict."""
        return dict(json.loads(self.wait({"writes": asked})["source"]))

    def wait(self, why: dict[str, Any]) -> dict[str, Any]:
        """Report the running action as waiting for `why`. Returns the operation that ends the wait."""
        self.end_forks()
        if not self.acts or threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Only an action that is being carried out can wait for agents, and not in a thread.")
        if self.postponed:
            raise TickRestarted
        caller, labels, result = self.subagent, self.labels, self.result
        with self.clock.paused():
            self.server.finish(self.step_id, self.report({**result, **why}))
            self.waiting.append(caller)
            try:
                with weave_agent.outside_loop():
                    op = self.serve()
                self.step_id = int(op["step_id"])
            finally:
                self.waiting.pop()
                self.result = result
                self.enter(caller, labels, acts=True)
        self.output.take()
        return op

    def request(self, kind: str, body: dict[str, Any]) -> Any:
        with self.clock.paused():
            return self.server.request(self.step_id, kind, body)

    def bootstrap(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Execute the bootstrap file, then its action. Its registrations move to the main subagent."""
        if (mock := self.mock) is None:
            raise RuntimeError("the trace has been set up already")
        self.run_action("/app/bootstrap.py", op["source"], result)
        self.mock = None
        del self.tree.agents["bootstrap"]
        main = self.tree.agents.get("main")
        if main is None:
            mock.name, self.tree.agents["main"], main = "main", mock, mock
            mock.task.description = str(self.module.__doc__ or "").strip().split("\n\n")[0]
        else:
            main.observation_views += mock.observation_views
            main.task.evaluations += mock.task.evaluations
            main.tools.update(mock.tools)
            main.cache.update(mock.cache)
            mock.current_tick.evaluations += main.current_tick.evaluations
            main.current_tick = mock.current_tick
            main.block_size = mock.block_size if main.block_size == 768 else main.block_size
            main.children += [child for child in mock.children if child != "main"]
            vars(main).setdefault("planned", vars(mock).pop("planned", 0))
        for subagent in self.tree.agents.values():
            if subagent.parent == "bootstrap":
                subagent.parent = None if subagent is main else "main"
        main.end_time = time.time() + main.time_budget * 60
        self.current = main

    def begin(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Start a tick, and call every observation view, unless the tick is one of a plan."""
        self.ticks += 1
        self.current.current_tick = api.Tick(self.ticks)
        plan = vars(self.current)
        planned, first = int(plan.pop("planned", 0)), plan.pop("plan_began", len(self.tree.blocks))
        actions = [block["body"] for block in self.tree.blocks[first:] if block["type"] == "action"]
        if planned > 0 and "self.return_to_caller(" not in "".join(actions[-1:]):
            plan["planned"], plan["plan_began"], result["imagined"] = planned - 1, first, True
            self.list_views(op, result)
            return
        views = list(self.current.observation_views)[:MAX_REPORTED]
        result["views"] = []
        for number, view in enumerate(views):
            shown: dict[str, Any] = {"title": clean(str(view["title"]), 200)}
            try:
                text = plain(self.within_share(len(views) - number, view["callback"]))
                shown["text"] = text if isinstance(text, str) else clean(dumps(text, ensure_ascii=False))
            except BaseException as error:  # noqa: BLE001 - a view's failure is an error block
                shown["error"] = failure(error, "view", self.app)
            result["views"].append(shown)

    def list_views(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        views = list(self.current.observation_views)[:MAX_REPORTED]
        result["views"] = [{"title": clean(str(view["title"]), 200)} for view in views]

    def run(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Execute a block, and for an action the callback that it registered."""
        index = len(self.tree.blocks)
        if index and self.tree.blocks[-1]["body"] == op["source"]:
            index -= 1  # the block was recorded before it is executed
        name = f"/app/block_{index}.py"
        if op.get("type") == "action":
            self.run_action(name, op["source"], result)
        else:
            self.register(name, op["source"], result)

    def resume(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Fail: no action waits. If an action waited, `serve` would have returned this operation."""
        raise RuntimeError(f"no action waits for a subagent: {REBUILT_DIFFERENTLY}")

    def evaluate(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Run the task's evaluations, then the tick's. The worker runs the protected ones, outside this process."""
        asked = json.loads(op["source"] or "{}")
        scopes = {"task": self.current.task.evaluations, "tick": self.current.current_tick.evaluations}
        jobs = [(scope, entry) for scope, entries in scopes.items() for entry in entries[:MAX_REPORTED]]
        alone = op.get("type") == "evaluation"  # a trial of one
        jobs = [job for job in jobs if job[0] == "tick" or not (alone or job[1]["title"] in asked.get("titles", ()))]
        result["claims"] = claims(self.module.__dict__, asked.get("claims", ()))
        result["evaluations"] = []
        room = MAX_VALUES_CHARS
        for number, (scope, evaluation) in enumerate(jobs):
            done: dict[str, Any] = {"title": clean(str(evaluation["title"]), 200), "scope": scope}
            try:
                value = plain(self.within_share(len(jobs) - number, evaluation["callback"]))
                room -= size(value)
                done["value"] = value if room > 0 else show(value, 500)
            except BaseException as error:  # noqa: BLE001 - one failure must not stop the others
                done["error"] = failure(error, "evaluation", self.app)
            result["evaluations"].append(done)
        self.latest[id(self.current)] = tuple(done for done in result["evaluations"] if done["scope"] == "task")

    def call_function(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Call a function of calls.py, or a tool of an MCP server."""
        result["value"] = plain(calls.call(**json.loads(op["source"])))
        self.end_forks()

    def list_tools(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """List the tools of the MCP servers, and make them functions for blocks."""
        result["value"] = mcp.list_tools(json.loads(op["source"] or "{}"))
        self.module.__dict__.update(mcp.functions(result["value"]))

    def trial(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Evaluate programs in processes of their own."""
        result["value"] = plain(trial.evaluate_programs(op["source"], float(op["seconds"])))

    def try_candidates(self, op: dict[str, Any], result: dict[str, Any]) -> None:
        """Run candidates of a block in copies of this process, which leave nothing behind."""
        try:
            with self.clock.paused():
                result["trials"] = trying.try_all(self, op)
        except trying.NotTried as why:
            result["not_tried"] = str(why)

    def run_action(self, name: str, source: str, result: dict[str, Any]) -> None:
        self.current.current_tick.action = None
        self.register(name, source, result)
        if (action := self.current.current_tick.action) is None:
            raise Failed("register", ValueError("no action was registered: call self.add_action(title, callback)"))
        try:
            result["value"] = plain(self.call(action["callback"]))
        except BaseException as error:  # noqa: BLE001 - even SystemExit is only this block's exception
            raise Failed("callback", error) from None

    def register(self, name: str, source: str, result: dict[str, Any]) -> None:
        """Execute a block's source in the namespace that all blocks share."""
        remember_source(name, source)
        before = set(map(id, self.registrations()))
        try:
            code = grounded.compiled(source, name)
        except BaseException as error:  # noqa: BLE001 - even SystemExit is only this block's exception
            raise Failed("compile", error) from None
        try:
            import_on_demand(code, self.module.__dict__)
            exec(code, self.module.__dict__)
        except BaseException as error:  # noqa: BLE001 - even SystemExit is only this block's exception
            raise Failed("register", error) from None
        finally:
            self.end_forks()
            new = [entry for entry in self.registrations() if id(entry) not in before]
            result["registered"] = [clean(str(entry["title"]), 200) for entry in new[:MAX_REPORTED]]

    def registrations(self) -> list[dict[str, Any]]:
        tick = self.current.current_tick
        action = [tick.action] if tick.action is not None else []
        return [*action, *tick.evaluations, *self.current.observation_views, *self.current.task.evaluations]

    def within_share(self, sharers: int, callback: Callable[[Any], Any]) -> Any:
        """Call a callback with an equal share of the remaining time, so that others keep time if it hangs."""
        left = self.clock.deadline - time.monotonic()
        if sharers == 1:
            return self.call(callback)
        with self.clock.limit(left / sharers):
            return self.call(callback)

    def call(self, callback: Callable[[Any], Any]) -> Any:
        try:
            return api.call(callback, self.current)
        finally:
            self.end_forks()

    def end_forks(self) -> None:
        """Exit in a child that model-written code forked: only the original process may go on."""
        if os.getpid() != self.pid:
            os._exit(0)

    def subagents(self) -> list[dict[str, Any]]:
        """Describe every subagent, for the problem map."""
        return [
            {
                "name": clean(name, 200),
                "parent": None if subagent.parent is None else clean(str(subagent.parent), 200),
                "description": clean(str(subagent.task.description)),
                "schema": schema if isinstance(schema := plain(subagent.schema), dict) else {},
                "time_budget": min(max(float(subagent.time_budget), 0.0), 1e9),
                "evaluations": self.latest.get(id(subagent), ()),
                "block_size": block_size(subagent.block_size),
                "completed": bool(subagent.completed),
                "returned": plain(subagent.returned),
            }
            for name, subagent in list(self.tree.agents.items())[:MAX_REPORTED]
        ]


REBUILT_DIFFERENTLY = "the process was rebuilt from its blocks, which had another effect this time"


def block_size(asked: object) -> int:
    """Return the tokens of a subagent's blocks. weave-agent names the sizes full, half and quarter."""
    if isinstance(asked, str):
        return {"half": 384, "quarter": 192}.get(asked, 768)
    number = float(asked) if isinstance(asked, int | float) else 768.0
    return next((size for size in (192, 384) if number <= size), 768)


def claims(namespace: dict[str, Any], names: list[str]) -> dict[str, str]:
    """Return these variables as JSON, for protected evaluations. Leaves out those that have no JSON or too much."""
    found = {}
    for name in names:
        with contextlib.suppress(Exception):  # a callback may have put anything there
            if len(text := dumps(namespace[name], allow_nan=False)) <= MAX_CLAIM_CHARS:
                found[name] = text
    return found


def working_directory() -> str:
    try:
        return clean(os.getcwd(), 1_000)
    except OSError:
        return "(deleted)"
