"""Forks: where a trace can be cut, so that another trace goes on from there, and how the fork begins.

Until a fork starts, it is one row. When it starts, it gets copies of what the program and the environment need
(store/forks.py), and is from then on a trace like any other.

A trace is cut between two steps: before the first step of the first new block. Blocks that came
from one step, such as an action and its error, stay together.
"""

import logging

import psycopg

from weavegen import sql
from weavegen.agents import AGENTS, Tick, harbor
from weavegen.database import Connection
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel import replay
from weavegen.kernel.replay import Cursor, Requested
from weavegen.store import forks, steps, traces
from weavegen.store.forks import Cut, Place
from weavegen.store.traces import TickSettings

log = logging.getLogger(__name__)


def plan(conn: Connection, trace_id: int, at: int) -> Cut:
    """Where to cut a trace so that block `at`, or the next possible one, is the first new one.

    Raises UsageError if there is no such place.
    """
    trace = forks.trace(conn, trace_id)
    if not 0 <= at <= trace.blocks or at == trace.blocks == 0:
        hint = f"give an index from 3 to {trace.blocks - 1}" if trace.blocks > 3 else "it can't be forked yet"
        raise UsageError(f"trace {trace_id} has {trace.blocks} blocks: {hint}")
    while trace.fork_of is not None and trace.fork_at is not None and at <= trace.fork_at:
        trace = forks.trace(conn, trace.fork_of)  # the steps of these blocks are in its journal
    if trace.agent not in AGENTS:
        raise UsageError(f"this version of weavegen has no agent {trace.agent}: upgrade it")
    first = at
    while True:
        place = forks.place(conn, trace, at)
        if place is None and at == first:
            raise UsageError(f"trace {trace_id} is over, with {at} blocks: give an index up to {at - 1}")
        if place is None:
            raise UsageError(f"trace {trace_id} ended with the step that made block {first}: give a lower index")
        if place.tick == 0:
            raise UsageError(f"block {at} belongs to the bootstrap, which is always the same: give a higher index")
        if at == place.start.blocks:
            return forks.cut(conn, trace, place, at, 0, place.start.clock)
        request, end = replayed(conn, trace.id, place, at)
        if request is not None:
            return forks.cut(conn, trace, place, request.index, request.ordinal, request.now)
        if end is None:  # the trace ended inside the tick
            raise UsageError(f"trace {trace_id} can't go on after block {at - 1}: give a lower index")
        at = end  # the tick ended without another request


def replayed(conn: Connection, trace_id: int, place: Place, at: int) -> tuple[Requested | None, int | None]:
    """The first request of a tick from block `at` on, and the index after its last block if the tick is over.

    Raises UsageError if this version's program requests other steps, or makes other blocks from their results.
    """
    spec = traces.spec(conn, trace_id, place.revision)
    inherited = tuple(traces.spec(conn, trace_id, other.revision).settings for other in place.start.inherited)
    listed = steps.listed_tools(conn, trace_id) if spec.mcp_servers else None
    cursor, mcp = Cursor(place.start), bool(spec.mcp_servers)
    tick = Tick(spec.settings, cursor, spec.bootstrap, inherited, mcp=mcp, listed=listed)
    try:
        advance = replay.replay(AGENTS[spec.agent].program(tick), tick.cursor, forks.entries(conn, place.steps))
        rows = sql.run(conn, "store/bodies_of_tick", trace=trace_id, tick=place.tick)
        bodies = {index: body for index, body in rows}  # noqa: C416 (a row's own `index` is a method)
        same = all(bodies.get(block.index) == block.body for _, block in tick.cursor.recorded if block.index < at)
    except Exception:  # noqa: BLE001 - a bug of the program raises anything
        same = False
    if not same:
        verifies = spec.harbor_task is not None and harbor.verification_of(place.start.state) is not None
        why = "verifies a step of a Harbor task" if verifies else "was written by another version of weavegen"
        raise UsageError(
            f"tick {place.tick} of trace {trace_id} {why}, so it can't be continued from its middle: give the index of "
            f"its first block, {place.start.blocks}"
        )
    request = next((request for request in tick.cursor.requested if request.index >= at), None)
    return request, None if advance.ended is None else tick.cursor.index


submit = forks.enqueue
"""Forks get a job of their own, because settings belong to a job, and users pause, cancel, watch and export by job.
The job begins with all revisions of the other job's settings, because the shared ticks were written under them."""


def begin(conn: Connection, trace_id: int, terms: TickSettings) -> str | None:
    """Copy into a started fork what it goes on from. Returns the line for its history; None if it is not a fork.

    Raises RolloutError if the other trace can't be cut there any more.
    """
    origin = forks.fork_point(conn, trace_id)
    if origin is None:
        return None
    try:
        with conn.transaction():
            cut = plan(conn, *origin)
            forks.copy_prefix(conn, trace_id, cut, terms)
    except UsageError as error:
        raise RolloutError(f"it can't be forked off any more: {error}") from None
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise  # the database does not answer
    except Exception as error:
        # Other traces start in the same transaction, so this one must not fail it.
        log.exception("trace %d can't be forked off trace %d: unexpected error", trace_id, origin[0])
        raise RolloutError(f"it can't be forked off: {type(error).__name__}: {error}") from error
    return f"as a fork of trace {cut.trace_id} at block {cut.at}"
