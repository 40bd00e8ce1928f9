"""The weave agent: one tick from top to bottom. docs/weave.md explains the terms.

A program yields steps and receives their results. It waits only at a `yield`. Calls take effect at once: `t.append`
records a block, `t.emit` a reward or an event. A program knows nothing of queues or SQL. After each step it runs
again from the tick's start (kernel/replay.py).
"""

from dataclasses import replace
from typing import Any

import msgspec

from weavegen.agents import dialogue, mcp_tools, tables
from weavegen.agents.program import Part, Tick
from weavegen.agents.world import Execution, Imagination, World, add, place, record, state_of
from weavegen.agents.write_block import open_prompt, write_block
from weavegen.kernel import prompts
from weavegen.kernel.replay import Program
from weavegen.kernel.selection import probability
from weavegen.kernel.steps import Append, Ended, Executed, Score
from weavegen.trace.blocks import BlockType


def weave(t: Tick) -> Program:
    """One tick: tick 0 records the bootstrap; later ticks act in the environment."""
    return (yield from (bootstrap(t) if t.number == 0 else tick(t, Execution())))


def planning(t: Tick) -> Program:
    """One tick without execution: the model imagines the results. The bootstrap of tick 0 is executed."""
    return (yield from (bootstrap(t) if t.number == 0 else tick(t, Imagination())))


def bootstrap(t: Tick) -> Part[Ended]:
    """Record the first tick: the genesis block, the bootstrap file and its outcome."""
    world = Execution()
    if listed := (yield from mcp_tools.listing(t)):
        tools = mcp_tools.tools_in(listed)
        t.say(BlockType.GENESIS, tables.genesis() + mcp_tools.functions_text(tools, listed), dialogue.schemas(tools))
    else:
        t.say(BlockType.GENESIS, tables.genesis())
    action = yield from world.execute(t, Append(type=BlockType.BOOTSTRAP, body=t.bootstrap), op="bootstrap")
    if action.error is not None:
        return Ended(done=True, failed="bootstrap", reason=f"{action.error.type}: {action.error.message}")
    return (yield from world.outcome(t, action))


def tick(t: Tick, world: World) -> Part[Ended]:
    """Observe, reason, act, write down the expectation, evaluate."""
    begun: Executed = yield t.execute(world.begins)
    t = replace(t, block_size=state_of(begun, t.subagent).block_size)
    if begun.imagined:
        t, world = replace(t, tags=("imagined",)), Imagination(in_run=True)
    t.say(BlockType.TASK_REMINDER, tables.problem_map(begun.subagents))
    for view in begun.views:
        yield from world.observe(t, view)
    add(t, begun)
    if 0 < t.settings.doom_loop <= (repeats := t.cursor.start.repeats):
        text = prompts.message("weave", "doom_loop").format(repeats=repeats)
        t.append(Append(type=BlockType.ERROR, body=text, tags=("doom-loop",)))

    yield from write_prose(t, BlockType.ORIENTATION, **place(t, BlockType.ORIENTATION, begun))
    action = yield from attempt(t, world, BlockType.ACTION)
    # Even if every attempt failed, something may have changed, so the expectation is checked anyway.
    if (yield from write_prose(t, BlockType.EXPECTATION)):
        yield from reconsider_views(t, world)
    yield from attempt(t, world, BlockType.EVALUATION)
    return (yield from world.outcome(t, action))


def write_prose(t: Tick, type: BlockType, **header: Any) -> Part[bool]:
    """Write a block of reasoning, which is not executed. Returns whether it compiles."""
    draft, error = yield from write_block(t, type, **header)
    record(t, draft, error)
    return draft.compiles


def attempt(t: Tick, world: World, type: BlockType) -> Part[Executed | None]:
    """Write a callback block and execute it. After an error, reason about it and try again.

    The first action of a tick with a low score is not executed, unless it ran when it was tried: the model reasons why
    not, and tries again. Returns None if no attempt succeeded.
    """
    may_backtrack, after_debug = type is BlockType.ACTION, False
    for attempts_left in reversed(range(t.settings.attempts)):
        draft, error = yield from write_block(t, type, after_debug=after_debug, tries=world.executes)
        if not draft.compiles:
            record(t, draft, error)
        elif attempts_left and may_backtrack and not draft.tried and (draft.score or 0.0) < t.settings.backtrack_below:
            may_backtrack = False
            t.append(draft)
            yield from write_prose(t, BlockType.BACKTRACK)
            continue
        else:
            executed = yield from world.execute(t, draft)
            if executed.error is None:
                return executed
        if attempts_left:
            after_debug = yield from write_prose(t, BlockType.DEBUG)
    return None


def reconsider_views(t: Tick, world: World) -> Part[None]:
    """Ask the model whether its observation views should change. If it answers yes, let it change them."""
    draft = Append(type=BlockType.OPTION, body="", began=t.cursor.now)
    question = prompts.option_question()
    [[answer]] = yield Score(prompt=open_prompt(t, draft), questions=(question,), texts=("",))
    option = t.append(msgspec.structs.replace(draft, question=question, yes=probability(answer)))
    if option.label is None or not option.label.answer:
        return
    draft, error = yield from write_block(t, BlockType.OBSERVATION_INFERENCE, tries=world.executes)
    if draft.compiles:
        yield from world.execute(t, draft)
    else:
        record(t, draft, error)
