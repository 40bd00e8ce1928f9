"""The world outside the model: observation views, execution, evaluations.

`Execution` runs blocks in the trace's environment. In planning, `Imagination` executes nothing: the model writes the
observations, errors and outcomes. Their methods are parts of a tick, used with `yield from`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias

import msgspec

from weavegen.agents import tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.reward import reward
from weavegen.agents.write_block import write_block
from weavegen.errors import EnvironmentFailure
from weavegen.kernel.context import window
from weavegen.kernel.replay import encode
from weavegen.kernel.steps import (
    Append,
    Candidate,
    Ended,
    Executed,
    Failure,
    Note,
    Op,
    Prompt,
    RunSubagent,
    SubagentState,
    View,
)
from weavegen.trace.blocks import USUAL, Block, BlockType
from weavegen.trace.render import one_line

HEADER_SAMPLES = 16
"""Samples of the next block's type. The first legal sample is used. Same number as weave-agent."""


class Execution:
    """Execution in the live Python process of the trace."""

    executes = True
    begins: ClassVar[Op] = "begin"
    """Starts a tick. The result has the observation views and the state of all subagents."""

    def observe(self, t: Tick, view: View) -> Part[None]:
        """Record the text of an observation view."""
        shown = Append(type=BlockType.OBSERVATION, title=view.title, body=view.text)
        t.append(shown if view.error is None else error_block(view.error))
        yield from ()

    def execute(self, t: Tick, draft: Append, op: Op = "run") -> Part[Executed]:
        """Execute a block and record it. If it calls a subagent, it is recorded before the subagent's ticks.

        In that case the return block after those ticks, not the block itself, records whether it ran without errors.
        """
        ordinal = t.cursor.ordinal
        executed: Executed = yield t.execute(op, *((draft.type, draft.body) if op == "run" else ()))
        t.append(with_result(draft, executed, ordinal))
        added = [executed]
        while waits(executed):
            added.append(executed := (yield from self.resume(t, executed)))
        for one in added:
            add(t, one)
        if draft.tried is not None and draft.tried is not (executed.error is None):
            came = "ran" if executed.error is None else f"failed ({executed.error.type})"
            t.emit(Note(kind="divergence", detail=f"a block of type {draft.type} {came}, other than when it was tried"))
        if executed.error is not None:
            t.append(error_block(executed.error))
        return executed

    def resume(self, t: Tick, executed: Executed) -> Part[Executed]:
        """Wait for the subagent, the other agents or the block that an action has asked for, then resume the action.

        Records their results. The blocks of other agents are in traces of their own.
        """
        source = body = ""
        if (name := executed.waits_for) is not None:
            yield RunSubagent(subagent=name, minutes=state_of(executed, name).time_budget)
        elif (asked := executed.writes) is not None:
            type = BlockType(asked.type)
            about, questions = place(t, type, executed), tuple(dict.fromkeys(map(one_line, asked.questions)))
            draft, error = yield from write_block(t, type, hint=asked.hint, questions=questions, **about)
            written = record(t, draft, error)
            told = {"type": written.type, "index": written.index, "body": written.body, "score": draft.score}
            source = encode(told).decode()
            body = f"The model has written block {written.index}, of type {written.type}."
        else:
            results = yield executed.delegates
            source = encode(results).decode()
            body = tables.delegated_results(executed.delegates, results)
        ordinal = t.cursor.ordinal
        resumed: Executed = yield t.execute("resume", source=source)
        if name is not None and resumed.error is not None and not resumed.subagents:
            body = f"{name}'s result was lost: its caller's process died."
        elif name is not None:
            body = tables.subagent_result(state_of(resumed, name))
        t.append(with_result(Append(type=BlockType.RETURN, body=body), resumed, ordinal))
        return resumed

    def outcome(self, t: Tick, action: Executed | None) -> Part[Ended]:
        """Run all evaluations, record the outcome block and end the tick. `action`: None if no action ran."""
        checked: Executed = yield t.execute("evaluate")
        for evaluated in checked.evaluations:
            if evaluated.error is not None:
                t.append(error_block(evaluated.error))
        add(t, checked)
        t.say(BlockType.OUTCOME, tables.outcome_table(action, checked.evaluations))
        t.emit(reward(t.cursor.recorded, checked.evaluations, t.settings))
        subagent = state_of(checked, t.subagent)
        return Ended(done=subagent.completed, returned=subagent.returned)


@dataclass(frozen=True)
class Imagination:
    """The world of planning, which the model imagines."""

    in_run: bool = False
    """Whether the tick is one of a plan: the run then goes on in its environment."""
    executes = False
    begins: ClassVar[Op] = "list"
    """Starts a tick in the environment, which lists its views without running them."""

    def observe(self, t: Tick, view: View) -> Part[None]:
        yield from self.imagine(t, BlockType.OBSERVATION, view.title)

    def execute(self, t: Tick, draft: Append) -> Part[Executed]:
        """Record a block as if it had been executed. The model decides whether it failed, and writes the error."""
        t.append(draft)
        if (yield from next_type(t, draft.type)) is not BlockType.ERROR:
            return Executed()
        error = yield from self.imagine(t, BlockType.ERROR)
        message = one_line(error.body.rpartition("\n")[2])
        return Executed(error=Failure(type="Imagined", message=message, traceback=error.body, stage="callback"))

    def outcome(self, t: Tick, action: Executed | None) -> Part[Ended]:
        """Have the model write the outcome. There is no reward, because no evaluation ran."""
        yield from self.imagine(t, BlockType.OUTCOME)
        blocks = [block for _, block in t.cursor.recorded]
        actions = [(one.body, after.type) for one, after in pairwise(blocks) if one.type is BlockType.ACTION]
        body, after = actions[-1] if actions else ("", None)
        undone = after in (BlockType.ERROR, BlockType.BACKTRACK)
        return Ended(done=not self.in_run and "self.return_to_caller(" in body and not undone)

    def imagine(self, t: Tick, type: BlockType, title: str | None = None) -> Part[Block]:
        """Have the model write a block that the environment would have written, and record it."""
        draft, _ = yield from write_block(t, type, title=title)
        body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in draft.body.split("\n"))
        return t.append(msgspec.structs.replace(draft, body=body))


World: TypeAlias = Execution | Imagination


def next_type(t: Tick, last: BlockType) -> Part[BlockType | None]:
    """The type of the block that the model expects after a block of type `last`. None: no sample is legal."""
    header = f"#subagent {one_line(t.subagent)}\n#startblock type: "
    prompt = Prompt(type=last, window=window(t.cursor.index, t.settings), header=header, next=True)
    samples: list[Candidate] = yield t.sample(prompt, t.settings, "next", HEADER_SAMPLES, round=0, max_tokens=8)
    return next((type for sample in samples for type in USUAL[last] if sample.text.strip() == type), None)


def waits(executed: Executed) -> bool:
    """Whether the action waits for a subagent, other agents or a block that it has asked for."""
    return executed.waits_for is not None or bool(executed.delegates) or executed.writes is not None


def record(t: Tick, draft: Append, error: str) -> Block:
    """Record a block without executing it, and its syntax error if it does not compile."""
    block = t.append(draft)
    if not draft.compiles:
        t.say(BlockType.ERROR, error)
    return block


def place(t: Tick, type: BlockType, executed: Executed) -> dict[str, Any]:
    """The header fields that only an orientation has: the tick's first block, and the working directory."""
    found = {"tick_start": t.cursor.start.blocks, "working_directory": executed.working_directory}
    return found if type is BlockType.ORIENTATION else {}


def add(t: Tick, executed: Executed) -> None:
    """Record the blocks that callbacks have added. Only views can add observations."""
    for block in executed.added:
        t.append(Append(type=BlockType(block.type), title=block.title or None, body=block.text))


def state_of(executed: Executed, name: str) -> SubagentState:
    """The state of a subagent after an operation. Raises EnvironmentFailure if a callback has removed it."""
    for subagent in executed.subagents:
        if subagent.name == name:
            return subagent
    raise EnvironmentFailure(f"the process no longer knows the subagent {name!r}: a callback has broken the tree")


def with_result(draft: Append, executed: Executed, ordinal: int) -> Append:
    """A block with the result of the Execute step `ordinal`, which is unknown while the action waits."""
    if waits(executed):
        return msgspec.structs.replace(draft, executed=ordinal)
    exception = None if executed.error is None else executed.error.type
    return msgspec.structs.replace(draft, ran=executed.error is None, exception=exception, executed=ordinal)


def error_block(failure: Failure) -> Append:
    """The block that shows an exception to the agent."""
    return Append(type=BlockType.ERROR, body=failure.traceback or f"{failure.type}: {failure.message}")
