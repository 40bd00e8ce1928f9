"""The toolsmith: carries out a user's request with tools from a library and with new tools.

A tick is one stage, or one turn of the last stage. Each stage reads only its own conversation:

    queries → summary → plan ⇄ choice ──────────────────────► execute
                                  └───► signature → make ─────┘    │
                                  ◄──────────── create_tool ───────┘

The stage `plan` does not read the library; the stage `choice` does. The agent `funsearch` writes new tools, which
stay in the library for later requests.
"""

import json
from collections.abc import Callable

import msgspec

from weavegen.agents import mcp_tools
from weavegen.agents.program import Part, Tick
from weavegen.agents.toolsmith.execute import execute
from weavegen.agents.toolsmith.make import make, signature
from weavegen.agents.toolsmith.prepare import choice, plan, queries, summary
from weavegen.agents.toolsmith.state import Request, Stage, State, Task, look_up
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Ended

STAGES: dict[str, Callable[[Stage], Part[Ended]]] = {
    stage.__name__: stage for stage in (queries, summary, plan, choice, signature, make, execute)
}


def toolsmith(t: Tick) -> Program:
    """Run one stage, or one turn of the stage `execute`."""
    task = msgspec.convert(json.loads(t.bootstrap), Task)
    state = State() if t.number == 0 else msgspec.convert(t.cursor.start.state, State)
    request = Request(task.task, task.requirements, task.constraints)
    if task.request is not None:  # the user may have changed it
        request = (yield from look_up("read_request", Request, number=task.request)) or request
    listed = yield from mcp_tools.listing(t)
    return (yield from STAGES[state.stage](Stage(t, task, request, state, listed)))


__all__ = ["STAGES", "Task", "toolsmith"]
