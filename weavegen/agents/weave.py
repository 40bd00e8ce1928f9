"""The weave agent. One tick, top to bottom (WEAVE section 3).

This is a program in the sense of journal.py: it yields what is to be done and knows nothing of queues or SQL.
"""

from dataclasses import replace

import msgspec

from weavegen.agents import planning as dream
from weavegen.agents import tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.reward import reward
from weavegen.agents.write_block import open_prompt, probability, write_block
from weavegen.errors import EnvironmentFailure
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program, encode
from weavegen.kernel.steps import (
    Append,
    Delegated,
    Ended,
    Executed,
    Failure,
    Op,
    RunSubagent,
    Score,
    SubagentState,
)
from weavegen.trace.blocks import BlockType


def weave(t: Tick) -> Program:
    """The bootstrap's tick first, then one tick after another until the agent returns to its caller."""
    return (yield from (bootstrap(t) if t.number == 0 else tick(t)))


def planning(t: Tick) -> Program:
    """The same ticks after a real bootstrap, but nothing is executed: the model also writes the world's part."""
    return (yield from weave(replace(t, dreams=t.number > 0)))


def tick(t: Tick) -> Part[Ended]:
    """Look, think, act, say what should have happened, check it."""
    world: Executed = yield t.execute("list" if t.dreams else "begin")
    t = replace(t, block_size=state(world, t.subagent).block_size)
    yield Append(type=BlockType.TASK_REMINDER, body=tables.problem_map(world.subagents))
    for view in world.views:
        if t.dreams:
            yield from dream.imagine(t, BlockType.OBSERVATION, view.title)
        elif view.error is None:
            yield Append(type=BlockType.OBSERVATION, title=view.title, body=view.text)
        else:
            yield error_block(view.error)
    if 0 < t.settings.doom_loop <= t.cursor.start.repeats:
        yield Append(type=BlockType.ERROR, body=tables.doom_loop(t.cursor.start.repeats), tags=("doom-loop",))

    yield from prose(t, BlockType.ORIENTATION, tick_start=t.cursor.start.blocks, directory=world.working_directory)
    action = yield from attempt(t, BlockType.ACTION)
    if action is not None:
        if (yield from prose(t, BlockType.EXPECTATION)):
            yield from reconsider_views(t)
        yield from attempt(t, BlockType.EVALUATION)
    return (yield from outcome(t, action))


def bootstrap(t: Tick) -> Part[Ended]:
    """The hand-written first tick: the framework's own text, then the bootstrap file and what came of it."""
    yield Append(type=BlockType.GENESIS, body=tables.genesis())
    action = yield from carry_out(t, "bootstrap", Append(type=BlockType.BOOTSTRAP, body=t.bootstrap))
    if action.error is not None:
        return Ended(done=True, failed="bootstrap", reason=f"{action.error.type}: {action.error.message}")
    return (yield from outcome(t, action))


def prose(t: Tick, type: BlockType, *, tick_start: int | None = None, directory: str | None = None) -> Part[bool]:
    """A block that is text and is not executed. True if it compiled."""
    written = yield from write_block(t, type, tick_start=tick_start, directory=directory)
    yield written.append
    if not written.compiles:
        yield Append(type=BlockType.ERROR, body=written.error)
    return written.compiles


def attempt(t: Tick, type: BlockType) -> Part[Executed | None]:
    """Write a callback block and execute it; on an error think about it and try again. None if it never ran.

    An action that the model itself holds in low regard is taken back, once a tick, instead of executed.
    """
    backtracked, after_debug = type is not BlockType.ACTION, False
    for left in reversed(range(t.settings.attempts)):
        written = yield from write_block(t, type, after_debug=after_debug)
        if not written.compiles:
            yield written.append
            yield Append(type=BlockType.ERROR, body=written.error)
        elif left and not backtracked and written.score < t.settings.backtrack_below:
            backtracked = True
            yield written.append
            yield from prose(t, BlockType.BACKTRACK)
            continue
        else:
            executed = yield from carry_out(t, "run", written.append)
            if executed.error is None:
                return executed
        if left:
            after_debug = yield from prose(t, BlockType.DEBUG)
    return None


def carry_out(t: Tick, op: Op, draft: Append) -> Part[Executed]:
    """Execute a block, then record it with what really happened; an exception becomes an error block.

    An action that calls a subagent, or asks other agents for something, waits in the middle. It is recorded before
    the subagent's ticks, so what really happened stands on the block after them, which says what the subagent
    returned. Other agents work in traces of their own: of theirs, only what they return is read here.
    """
    if t.dreams:
        return (yield from dream.carry_out(t, draft))
    ordinal = t.cursor.ordinal
    type, source = (None, "") if op == "bootstrap" else (draft.type, draft.body)
    executed: Executed = yield t.execute(op, type, source)
    yield happened(draft, executed, ordinal)
    while executed.waits_for is not None or executed.delegates:
        name, asked = executed.waits_for, executed.delegates
        found: tuple[Delegated, ...] = ()
        if name is not None:
            yield RunSubagent(subagent=name, minutes=state(executed, name).time_budget)
        else:
            found = yield asked
        ordinal = t.cursor.ordinal
        executed = yield t.execute("resume", source=encode(found).decode() if found else "")
        body = tables.found(asked, found) if name is None else tables.returned(state(executed, name))
        yield happened(Append(type=BlockType.RETURN, body=body), executed, ordinal)
    if executed.error is not None:
        yield error_block(executed.error)
    return executed


def reconsider_views(t: Tick) -> Part[None]:
    """Ask the model whether its observation views should change; if it says so, let it change them."""
    draft = Append(type=BlockType.OPTION, body="", began=t.cursor.now)
    question = prompts.option_question()
    [[answer]] = yield Score(prompt=open_prompt(t, draft), questions=(question,), texts=("",))
    option = yield msgspec.structs.replace(draft, question=question, yes=probability(answer))
    if option.label.answer:
        written = yield from write_block(t, BlockType.OBSERVATION_INFERENCE)
        if written.compiles:
            yield from carry_out(t, "run", written.append)
        else:
            yield written.append
            yield Append(type=BlockType.ERROR, body=written.error)


def outcome(t: Tick, action: Executed | None) -> Part[Ended]:
    """Run the task's and the tick's evaluations, write down how everything came out, and reward the tick."""
    if t.dreams:
        return (yield from dream.outcome(t))
    checked: Executed = yield t.execute("evaluate")
    for evaluated in checked.evaluations:
        if evaluated.error is not None:
            yield error_block(evaluated.error)
    yield Append(type=BlockType.OUTCOME, body=tables.outcome_table(action, checked.evaluations))
    yield reward(t.cursor.recorded, checked.evaluations, t.settings)
    mine = state(checked, t.subagent)
    return Ended(done=mine.completed, returned=mine.returned)


def state(executed: Executed, name: str) -> SubagentState:
    """A subagent as an operation left it. Raises EnvironmentFailure where a callback has broken the tree."""
    for one in executed.subagents:
        if one.name == name:
            return one
    raise EnvironmentFailure(f"the process no longer knows the subagent {name!r}: a callback has broken the tree")


def happened(draft: Append, executed: Executed, ordinal: int) -> Append:
    """A block with what really happened when it was executed; nothing is known while it waits."""
    if executed.waits_for is not None or executed.delegates:
        return msgspec.structs.replace(draft, executed=ordinal)
    error = executed.error
    return msgspec.structs.replace(
        draft, ran=error is None, exception=None if error is None else error.type, executed=ordinal
    )


def error_block(failure: Failure) -> Append:
    return Append(type=BlockType.ERROR, body=failure.traceback or f"{failure.type}: {failure.message}")
