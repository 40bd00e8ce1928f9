"""The weave agent: one tick from top to bottom. docs/weave.md explains the terms.

A program yields steps and receives their results: it waits where it says `yield`, and nowhere else. What takes
effect at once is a call: `t.append` records a block, `t.emit` a reward or an event. A program knows nothing of
queues or SQL. Whenever a step has ended it runs again from the tick's start (kernel/replay.py).
"""

from dataclasses import replace

import msgspec

from weavegen.agents import tables
from weavegen.agents.planning import Imagination
from weavegen.agents.program import Part, Tick
from weavegen.agents.world import Execution, World, state_of
from weavegen.agents.write_block import open_prompt, probability, write_block
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.steps import Append, Ended, Executed, Score
from weavegen.trace.blocks import BlockType


def weave(t: Tick) -> Program:
    """The bootstrap's tick first, then one tick after another until the agent returns to its caller."""
    return (yield from (bootstrap(t) if t.number == 0 else tick(t, Execution())))


def planning(t: Tick) -> Program:
    """The same ticks after a real bootstrap, but nothing is executed: the model also imagines the results."""
    return (yield from (bootstrap(t) if t.number == 0 else tick(t, Imagination())))


def bootstrap(t: Tick) -> Part[Ended]:
    """The hand-written first tick: the text of the framework, then the bootstrap file and its outcome."""
    world = Execution()
    t.append(Append(type=BlockType.GENESIS, body=tables.genesis()))
    action = yield from world.execute(t, Append(type=BlockType.BOOTSTRAP, body=t.bootstrap), op="bootstrap")
    if action.error is not None:
        return Ended(done=True, failed="bootstrap", reason=f"{action.error.type}: {action.error.message}")
    return (yield from world.outcome(t, action))


def tick(t: Tick, world: World) -> Part[Ended]:
    """Observe, reason, act, say what should have happened, check it."""
    begun = yield from world.begin(t)
    t = replace(t, block_size=state_of(begun, t.subagent).block_size)
    t.append(Append(type=BlockType.TASK_REMINDER, body=tables.problem_map(begun.subagents)))
    for view in begun.views:
        yield from world.observe(t, view)
    if 0 < t.settings.doom_loop <= t.cursor.start.repeats:
        t.append(Append(type=BlockType.ERROR, body=tables.doom_loop(t.cursor.start.repeats), tags=("doom-loop",)))

    tick_start, directory = t.cursor.start.blocks, begun.working_directory
    yield from write_prose(t, BlockType.ORIENTATION, tick_start=tick_start, directory=directory)
    action = yield from attempt(t, world, BlockType.ACTION)
    if action is not None:
        if (yield from write_prose(t, BlockType.EXPECTATION)):
            yield from reconsider_views(t, world)
        yield from attempt(t, world, BlockType.EVALUATION)
    return (yield from world.outcome(t, action))


def write_prose(
    t: Tick, type: BlockType, *, tick_start: int | None = None, directory: str | None = None
) -> Part[bool]:
    """Write a block of reasoning, which is not executed. Returns whether it compiles."""
    written = yield from write_block(t, type, tick_start=tick_start, directory=directory)
    t.append(written.append)
    if not written.compiles:
        t.append(Append(type=BlockType.ERROR, body=written.error))
    return written.compiles


def attempt(t: Tick, world: World, type: BlockType) -> Part[Executed | None]:
    """Write a callback block and execute it. After an error, reason about it and try again.

    An action with a low score is not executed but taken back, once a tick. Returns None if no attempt ran.
    """
    may_backtrack, after_debug = type is BlockType.ACTION, False
    for attempts_left in reversed(range(t.settings.attempts)):
        written = yield from write_block(t, type, after_debug=after_debug)
        if not written.compiles:
            t.append(written.append)
            t.append(Append(type=BlockType.ERROR, body=written.error))
        elif attempts_left and may_backtrack and written.score < t.settings.backtrack_below:
            may_backtrack = False
            t.append(written.append)
            yield from write_prose(t, BlockType.BACKTRACK)
            continue
        else:
            executed = yield from world.execute(t, written.append)
            if executed.error is None:
                return executed
        if attempts_left:
            after_debug = yield from write_prose(t, BlockType.DEBUG)
    return None


def reconsider_views(t: Tick, world: World) -> Part[None]:
    """Ask the model whether its observation views should change; if it answers yes, let it change them."""
    draft = Append(type=BlockType.OPTION, body="", began=t.cursor.now)
    question = prompts.option_question()
    [[answer]] = yield Score(prompt=open_prompt(t, draft), questions=(question,), texts=("",))
    option = t.append(msgspec.structs.replace(draft, question=question, yes=probability(answer)))
    if option.label is None or not option.label.answer:
        return
    written = yield from write_block(t, BlockType.OBSERVATION_INFERENCE)
    if written.compiles:
        yield from world.execute(t, written.append)
    else:
        t.append(written.append)
        t.append(Append(type=BlockType.ERROR, body=written.error))
