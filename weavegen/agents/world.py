"""What a tick meets outside the model: observation views, execution, evaluations. Here, the real ones.

The weave program is written against `World`. `Execution` runs the blocks in the trace's environment. planning.py
has the other implementation, in which the model writes what the environment would have answered.
"""

from typing import Protocol

import msgspec

from weavegen.agents import tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.reward import reward
from weavegen.errors import EnvironmentFailure
from weavegen.kernel.replay import encode
from weavegen.kernel.steps import (
    Append,
    Delegated,
    Ended,
    Executed,
    Failure,
    Op,
    RunSubagent,
    SubagentState,
    View,
)
from weavegen.trace.blocks import BlockType


class World(Protocol):
    """What the weave program asks of its surroundings. Each method is a part of a tick, used with `yield from`."""

    def begin(self, t: Tick) -> Part[Executed]:
        """Start the tick. The result has the observation views and the state of all subagents."""

    def observe(self, t: Tick, view: View) -> Part[None]:
        """Record what one observation view shows."""

    def execute(self, t: Tick, draft: Append) -> Part[Executed]:
        """Execute a block and record it with its result; an exception becomes an error block."""

    def outcome(self, t: Tick, action: Executed | None) -> Part[Ended]:
        """Run all evaluations, record the outcome block and end the tick. `action`: None if no action ran."""


class Execution:
    """The real world: the live Python process of the trace."""

    def begin(self, t: Tick) -> Part[Executed]:
        begun: Executed = yield t.execute("begin")
        return begun

    def observe(self, t: Tick, view: View) -> Part[None]:
        if view.error is not None:
            t.append(error_block(view.error))
        else:
            t.append(Append(type=BlockType.OBSERVATION, title=view.title, body=view.text))
        yield from ()

    def execute(self, t: Tick, draft: Append, op: Op = "run") -> Part[Executed]:
        """Execute a block. It is recorded before the ticks of a subagent that it calls.

        So whether it ran without errors is recorded on the last block: the block itself, or the return block
        after the subagent's ticks.
        """
        ordinal = t.cursor.ordinal
        executed: Executed = yield t.execute(op, *((draft.type, draft.body) if op == "run" else ()))
        t.append(with_result(draft, executed, ordinal))
        while waits(executed):
            executed = yield from self.resume(t, executed)
        if executed.error is not None:
            t.append(error_block(executed.error))
        return executed

    def resume(self, t: Tick, executed: Executed) -> Part[Executed]:
        """Wait for the subagent, or the other agents, that an action has called; then let the action go on.

        Records what they returned. The blocks of other agents are in traces of their own.
        """
        results: tuple[Delegated, ...] = ()
        if (name := executed.waits_for) is not None:
            yield RunSubagent(subagent=name, minutes=state_of(executed, name).time_budget)
        else:
            results = yield executed.delegates
        ordinal = t.cursor.ordinal
        resumed: Executed = yield t.execute("resume", source=encode(results).decode() if results else "")
        if name is not None:
            body = tables.returned(state_of(resumed, name))
        else:
            body = tables.found(executed.delegates, results)
        t.append(with_result(Append(type=BlockType.RETURN, body=body), resumed, ordinal))
        return resumed

    def outcome(self, t: Tick, action: Executed | None) -> Part[Ended]:
        checked: Executed = yield t.execute("evaluate")
        for evaluated in checked.evaluations:
            if evaluated.error is not None:
                t.append(error_block(evaluated.error))
        t.append(Append(type=BlockType.OUTCOME, body=tables.outcome_table(action, checked.evaluations)))
        t.emit(reward(t.cursor.recorded, checked.evaluations, t.settings))
        subagent = state_of(checked, t.subagent)
        return Ended(done=subagent.completed, returned=subagent.returned)


def waits(executed: Executed) -> bool:
    """Whether the action has called a subagent or other agents, and waits for them."""
    return executed.waits_for is not None or bool(executed.delegates)


def state_of(executed: Executed, name: str) -> SubagentState:
    """The state of a subagent after an operation. Raises EnvironmentFailure where a callback has removed it."""
    for subagent in executed.subagents:
        if subagent.name == name:
            return subagent
    raise EnvironmentFailure(f"the process no longer knows the subagent {name!r}: a callback has broken the tree")


def with_result(draft: Append, executed: Executed, ordinal: int) -> Append:
    """A block with the result of its execution, which is unknown while the action waits.

    `ordinal`: that of the Execute step.
    """
    if waits(executed):
        return msgspec.structs.replace(draft, executed=ordinal)
    error = executed.error
    return msgspec.structs.replace(
        draft, ran=error is None, exception=None if error is None else error.type, executed=ordinal
    )


def error_block(failure: Failure) -> Append:
    """The block that shows an exception to the agent."""
    return Append(type=BlockType.ERROR, body=failure.traceback or f"{failure.type}: {failure.message}")
