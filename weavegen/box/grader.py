"""Runs the protected evaluations of a bootstrap file, in a box of their own, without code of the agent.

Each evaluation has a process that runs the bootstrap's text as the trace's own process did at first, with the same seed
and parameters, but not its action. So its variables have the values that the task began with. Then it sets the claimed
variables and calls the evaluation. Messages to the worker are lines of JSON in a pipe.

The agent's files lie in /app, where nothing is imported from: `bootstraps` and `tools` are found by their names alone.
"""

import builtins
import json
import os
import random
import signal
import sys
import types
from typing import Any

from weavegen.box import api, guard, importing, wire
from weavegen.box.memory import hide_memory
from weavegen.box.plain import failure, plain, remember_source, show
from weavegen.box.user import begin


def main(descriptor: int) -> None:
    """Grade as the open file `descriptor` says, which sandbox/grading.py writes as JSON."""
    spec = begin(descriptor, "verdicts")
    pipe, seconds, code = int(spec["verdicts"]), float(spec["seconds"]), 0
    hide_memory()  # no program that an evaluation starts may read this memory or open this pipe
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 of a box ignores signals without a handler
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.alarm(int(seconds) + 60)  # if this process still runs then, the worker was killed
    write(pipe, {"number": -1})  # it has started
    for number, (callback, claims) in enumerate(spec["evaluations"]):
        child = os.fork()
        if child == 0:
            write(pipe, {"number": number, **verdict(spec, callback, claims, seconds / len(spec["evaluations"]))})
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or code
    write(pipe, {"number": -2, "ended": f"exit code {code}"})


def write(pipe: int, message: dict[str, Any]) -> None:
    wire.write(pipe, json.dumps(message).encode() + b"\n")


def verdict(spec: dict[str, Any], callback: str, claims: dict[str, str], seconds: float) -> dict[str, Any]:
    """Run the bootstrap's text and an evaluation. Returns its value, or the exception that it raised."""
    clock = guard.Clock()
    try:
        with clock.limit(seconds):
            namespace = run_bootstrap(spec)
            namespace.update({name: json.loads(text) for name, text in claims.items()})
            returned = api.call(namespace[callback], namespace["self"])
            if (value := plain(returned)) is not True and value is not False:
                raise TypeError(f"{callback} returned {show(returned, 200)}, not True or False")
        return {"value": value}
    except BaseException as error:  # noqa: BLE001 - even SystemExit is only the task's exception
        clock.stop()
        return {"error": failure(error, "evaluation", str(spec["app"]))}


def run_bootstrap(spec: dict[str, Any]) -> dict[str, Any]:
    """Execute the bootstrap's text in a namespace like that of the live process, which is returned."""
    os.chdir(spec["app"])
    folders = [spec["app"], *([spec["files"]] if spec["files"] else [])]
    for name in ("bootstraps", "tools", "__main__"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [f"{f}/{name}" for f in folders] if name in ("bootstraps", "tools") else []
    importing.prepare(spec["packages"])
    _, subagent, names = importing.new_tree(spec["args"])
    namespace = sys.modules["__main__"].__dict__
    namespace.update(names, self=subagent, __builtins__=builtins)
    remember_source("/app/bootstrap.py", spec["source"])
    random.seed(int(spec["seed"]))
    code = compile(spec["source"], "/app/bootstrap.py", "exec", dont_inherit=True)
    importing.import_on_demand(code, namespace)
    exec(code, namespace)
    namespace.update(self=subagent, graded_before=spec["before"])  # not a copy: functions read this namespace
    return namespace
