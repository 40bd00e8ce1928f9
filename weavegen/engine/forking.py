"""Forks: where a trace can be cut, so that another goes on from there, and how that one begins.

A fork is begun when a queued trace is started, and not when it is asked for: until then it is one row. It is given
copies of what the program and the environment need (store/forks.py), and then it is a trace like any other.

A trace is cut between two steps, before the first one that it took for the block to be written anew. Blocks that
came out of one step together, such as an action and the error that it ended in, stay together.
"""

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from weavegen.agents import AGENTS, Tick
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel import replay
from weavegen.kernel.replay import Cursor, Program
from weavegen.kernel.steps import Effect
from weavegen.store import forks, traces
from weavegen.store.forks import Cut, Place
from weavegen.store.traces import TickSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """A request for a step, as a replay met it."""

    ordinal: int
    index: int
    """Of the block that it was for."""
    now: float
    """The program's clock; seconds since the epoch."""


def plan(conn: sa.Connection, trace_id: int, at: int) -> Cut:
    """Where to cut a trace so that block `at` is written anew, or the next one that can be.

    Raises UsageError where it can't be.
    """
    trace = forks.trace(conn, trace_id)
    if not 0 <= at <= trace.blocks or at == trace.blocks == 0:
        raise UsageError(f"trace {trace_id} has {trace.blocks} blocks: {beyond(trace.blocks)}")
    while trace.fork_of is not None and trace.fork_at is not None and at <= trace.fork_at:
        trace = forks.trace(conn, trace.fork_of)  # what the model was asked for these blocks is kept there
    if trace.agent not in AGENTS:
        raise UsageError(f"this version of weavegen has no agent {trace.agent}: upgrade it")
    wanted = at
    while True:
        place = forks.place(conn, trace, at)
        if place is None and at == wanted:
            raise UsageError(f"trace {trace_id} is over, with {at} blocks: give an index up to {at - 1}")
        if place is None:
            raise UsageError(f"trace {trace_id} ended with what made block {wanted}: give a lower index")
        if place.tick == 0:
            raise UsageError(f"block {at} is of the bootstrap, which is always the same: give a higher index")
        if at == place.start.blocks:
            return forks.cut(conn, trace, place, at, 0, place.start.clock)
        asked, end = replayed(conn, trace.id, place, at)
        if asked is not None:
            return forks.cut(conn, trace, place, asked.index, asked.ordinal, asked.now)
        if end is None:  # its call ended with the trace
            raise UsageError(f"trace {trace_id} can't go on behind block {at - 1}: give a lower index")
        at = end  # the tick is over before anything else is asked for


def beyond(blocks: int) -> str:
    return f"give an index from 3 to {blocks - 1}" if blocks > 3 else "it can't be forked yet"


def replayed(conn: sa.Connection, trace_id: int, place: Place, at: int) -> tuple[Asked | None, int | None]:
    """What a tick first asked for when it had come to block `at`; where it is over, the index behind its end.

    Raises UsageError where this version's program asks otherwise, or makes other blocks of the answers.
    """
    tick = program_of(conn, trace_id, place.start, place.revision)
    requests: list[Asked] = []
    agent = AGENTS[traces.spec(conn, trace_id, place.revision).agent].program
    try:
        entries = forks.entries(conn, place.steps)
        advance = replay.replay(watched(agent(tick), tick.cursor, requests), tick.cursor, entries)
        bodies = forks.bodies(conn, trace_id, place.tick)
        same = all(bodies.get(block.index) == block.body for _, block in tick.cursor.recorded if block.index < at)
    except Exception:  # noqa: BLE001 - also what ended a trace as a bug of its program
        same = False
    if not same:
        raise UsageError(
            f"tick {place.tick} of trace {trace_id} was written by another version of weavegen, which can't be "
            f"taken up in its middle: give the index of its first block, {place.start.blocks}"
        )
    asked = next((one for one in requests if one.index >= at), None)
    return asked, None if advance.ended is None else tick.cursor.index


def program_of(conn: sa.Connection, trace_id: int, start: replay.Start, revision: int) -> Tick:
    """What the program of a tick is given."""
    fixed = traces.spec(conn, trace_id, revision)
    inherited = tuple(traces.spec(conn, trace_id, terms.revision).settings for terms in start.inherited)
    return Tick(fixed.settings, Cursor(start), fixed.bootstrap, inherited)


def watched(program: Program, cursor: Cursor, requests: list[Asked]) -> Generator[Any, Any, Any]:
    """The program itself, with a note of every request for steps."""
    try:
        request = next(program)
        while True:
            if not isinstance(request, Effect):
                requests.append(Asked(cursor.ordinal, cursor.index, cursor.now))
            try:
                answer = yield request
            except RolloutError as error:
                request = program.throw(error)
            else:
                request = program.send(answer)
    except StopIteration as stop:
        return stop.value
    finally:
        program.close()


def submit(
    conn: sa.Connection, cut: Cut, n: int, *, seed: int, values: dict[str, Any], name: str | None, version: str
) -> tuple[int, list[int]]:
    """Queue `n` forks, in a job of their own. Returns its id and theirs. Raises UsageError for wrong settings.

    A job of their own, because settings are a job's, and because people pause, cancel, watch and export by job.
    It begins with all revisions of the other job's settings, since the shared ticks were written under these.
    """
    return forks.enqueue(conn, cut, n, seed=seed, values=values, name=name, version=version)


def begin(conn: sa.Connection, trace_id: int, terms: TickSettings) -> str | None:
    """Make of a started trace that is a fork what it is to go on from. Returns what to say of it; None: no fork.

    Raises RolloutError where the other trace can't be cut there any more.
    """
    found = forks.wanted(conn, trace_id)
    if found is None:
        return None
    try:
        with conn.begin_nested():
            cut = plan(conn, *found)
            forks.begin(conn, trace_id, cut, terms)
    except UsageError as error:
        raise RolloutError(f"it can't be forked off any more: {error}") from None
    except (sa.exc.OperationalError, sa.exc.InterfaceError):
        raise  # the database is away
    except Exception as error:
        # Other traces are started in the same transaction.
        log.exception(
            "trace %d can't be forked off trace %d for a reason that nobody thought of", trace_id, found[0]
        )
        raise RolloutError(f"it can't be forked off: {type(error).__name__}: {error}") from error
    return f"as a fork of trace {cut.trace_id} at block {cut.at}"
