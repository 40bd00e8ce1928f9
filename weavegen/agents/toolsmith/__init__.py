"""The toolsmith: carries out requests with tools that it finds in a library, or has made.

A tick is a stage or a turn, and each stage reads nothing but what it needs:

    queries → summary → plan ⇄ choice ──────────────────────► execute
                                  └───► signature → make ─────┘    │
                                  ◄──────────── create_tool ───────┘

The plan is written blind, without a look at the library; the choice looks at what there is. What is made is found
by the agent `funsearch`, kept in the library, and used again by later requests.
"""

from collections.abc import Callable

import msgspec

from weavegen.agents.dialogue import task_of
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.execute import execute
from weavegen.agents.toolsmith.make import make, signature
from weavegen.agents.toolsmith.prepare import choice, plan, queries, summary
from weavegen.agents.toolsmith.state import Request, Stage, State, Task, consult
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Ended

STAGES: dict[str, Callable[[Stage], Part[Ended]]] = {
    stage.__name__: stage for stage in (queries, summary, plan, choice, signature, make, execute)
}


def toolsmith(t: Tick) -> Program:
    """One stage, or one turn of the execution."""
    task = task_of(t.bootstrap, Task)
    if task is None:
        return Ended(done=True, failed="bootstrap", reason="the toolsmith is given a task, not a bootstrap file")
    state = State() if t.number == 0 else msgspec.convert(t.cursor.start.state, State)
    request = yield from current(task)
    return (yield from STAGES[state.stage](Stage(t, task, request, state)))


def current(task: Task) -> Part[Request]:
    """The request as its user wants it now."""
    asked = Request(task.task, task.requirements, task.constraints)
    if task.request is None:
        return asked
    return (yield from consult("read_request", Request, asked, number=task.request))


__all__ = ["STAGES", "Task", "toolsmith"]
