"""The engine: from a step's result to the next steps, in one transaction.

Claim a step, do its work with no transaction open, then `finish` it: store the result by compare-and-set,
replay the trace's tick over its journal (journal.py), apply what the program newly asked for, commit. What is
returned are messages to send, after the commit and never before.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from weavegen.agents import AGENTS, Tick
from weavegen.engine import forking
from weavegen.errors import JournalMismatch, RolloutError
from weavegen.kernel import replay
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import (
    WAITS,
    Append,
    AskHuman,
    Delegate,
    Note,
    ProgramEvaluated,
    Reward,
    RunSubagent,
    SubagentDone,
    ToolCalled,
    ToolSaved,
)
from weavegen.store import blocks, candidates, delegation, forks, programs, steps, tools, traces
from weavegen.store.models import StepStatus, TraceStatus
from weavegen.store.steps import Claimed, Message
from weavegen.store.traces import LockedTrace

log = logging.getLogger(__name__)
REMEMBERED = 4096
"""Traces, times revisions of their settings, whose unchanging part a process keeps in memory."""
MOST_RESTARTS = 3
"""Of one tick, after the software changed under it; one more and the trace fails."""


@dataclass(frozen=True)
class Progress:
    """What an advance left to do, once it is committed."""

    messages: list[Message]
    over: bool = False
    """The trace is over: another may start, and its environment is to be closed."""


class Engine:
    """Advances traces. Holds nothing that matters: all state is in Postgres."""

    def __init__(self, db: sa.Engine, *, max_active: int, resend: float) -> None:
        self.db = db
        self.max_active = max_active
        self.resend = resend
        """Seconds after which a step that nobody took is sent again."""
        self._fixed: dict[tuple[int, int], traces.TraceSpec] = {}

    def fixed(self, conn: sa.Connection, trace_id: int, revision: int) -> traces.TraceSpec:
        """What never changes about a trace under one revision of its job's settings; read once per process.

        Raises RolloutError where a newer version of weavegen wrote what this one does not know.
        """
        key = trace_id, revision
        if key not in self._fixed:
            fixed = traces.fixed(conn, trace_id, revision)
            if fixed.agent not in AGENTS:
                raise RolloutError(f"this version of weavegen has no agent {fixed.agent}: upgrade the workers")
            if len(self._fixed) >= REMEMBERED:
                self._fixed.clear()
            self._fixed[key] = fixed
        return self._fixed[key]

    def finish(
        self, held: Claimed, status: StepStatus, save: Callable[[sa.Connection], None] | None = None, **values: Any
    ) -> Progress:
        """Store what came of a step, keep its parts in their tables with `save`, and advance its trace."""
        with self.db.begin() as conn:
            trace = traces.lock(conn, held.trace_id)
            steps.finish(conn, held, status, **values)
            if save is not None:
                save(conn)
            return self._advance(conn, trace)

    def advance(self, trace_id: int) -> Progress:
        """Advance a trace whose steps are all done; does nothing where there is nothing to do."""
        with self.db.begin() as conn:
            return self._advance(conn, traces.lock(conn, trace_id))

    def start_queued(self) -> list[Message]:
        """Start queued traces while there is room for them."""
        messages: list[Message] = []
        with self.db.begin() as conn:
            for trace_id, terms in traces.to_start(conn, self.max_active):
                trace = traces.lock(conn, trace_id)
                try:
                    settings = self.fixed(conn, trace_id, terms.revision).settings
                    fork = forking.begin(conn, trace_id, terms)
                except RolloutError as error:
                    self._fail(conn, trace, error.kind, str(error), None)
                    continue
                if fork is None:
                    traces.begin_tick(conn, trace_id, 0, 0, traces.epoch() + 60 * settings.time_budget, terms)
                else:
                    trace = traces.lock(conn, trace_id)
                host = "on the host's network" if settings.network == "host" else None
                traces.event(conn, trace_id, "started", ", ".join(filter(None, (fork, host))) or None)
                messages += self._advance(conn, trace).messages
        return messages

    def _advance(self, conn: sa.Connection, trace: LockedTrace) -> Progress:
        if trace.status != TraceStatus.RUNNING:
            return Progress([])
        while True:
            here = traces.here(conn, trace)
            start = here.start
            try:
                fixed = self.fixed(conn, trace.id, here.terms.revision)
                newest = self.fixed(conn, trace.id, here.newest_terms.revision).settings
                entries, ids = steps.load(conn, trace.id, start.tick, here.run)
                cursor = replay.Cursor(start)
                inherited = tuple(self.fixed(conn, trace.id, terms.revision).settings for terms in start.inherited)
                tick = Tick(fixed.settings, cursor, fixed.bootstrap, inherited)
                advance = replay.replay(AGENTS[fixed.agent].program(tick), cursor, entries)
            except JournalMismatch as error:
                trace = self._restart(conn, trace, start, here.run, str(error))
                if trace.status != TraceStatus.RUNNING:
                    return Progress([], over=True)
                continue
            except RolloutError as error:
                self._fail(conn, trace, error.kind, str(error), None)
                return Progress([], over=True)
            except Exception as error:
                # A bug in a program ends its trace, with the evidence, and no other.
                log.exception("trace %d: its program failed", trace.id)
                self._fail(conn, trace, "bug", f"{type(error).__name__}: {error}", traceback.format_exc())
                return Progress([], over=True)
            trace = self._apply(conn, trace, start, advance, ids)
            if advance.steps:
                # Of a paused job nothing is sent: the sweeper does, as soon as it is resumed.
                resend = 0.0 if here.paused else self.resend
                inserted = steps.insert_ready(
                    conn, trace.id, start.tick, here.run, advance.steps, here.host, resend
                )
                messages = [message for message in inserted if message.kind not in WAITS]
                asked = advance.steps[0][1]
                if not isinstance(asked, RunSubagent):
                    for message, (_, step) in zip(inserted, advance.steps, strict=True):
                        if isinstance(step, Delegate):
                            messages += self._delegate(conn, trace.id, fixed, message.step_id, step)
                    return Progress([] if here.paused else messages)
                deadline = min(start.deadline + here.paused_seconds, cursor.now + 60 * asked.minutes)
                traces.begin_tick(
                    conn, trace.id, here.newest + 1, trace.blocks, deadline, here.newest_terms,
                    subagent=asked.subagent, caller=start.tick,
                )  # fmt: skip
                continue
            if advance.ended is None:
                return Progress([])
            trace = self._end_tick(conn, trace, start, fixed.settings)
            if advance.ended.failed is not None:
                reason, returned = advance.ended.reason or "", advance.ended.returned
                self._fail(conn, trace, advance.ended.failed, reason, None, returned)
                return Progress([], over=True)
            # A tick keeps the settings that it was begun with; whether another follows is up to the newest ones.
            longer = here.paused_seconds + waited_for_people(start, entries)
            if here.caller is None:
                begun_under = inherited[0] if inherited else fixed.settings
                longer += 60 * (newest.time_budget - begun_under.time_budget)
            start = replace(start, deadline=start.deadline + longer)
            because = spent_budget(trace, start, newest, cursor.now)
            if advance.ended.done and (here.caller is None or because in (None, "time")):
                because = "returned"
            if because is None:
                traces.begin_tick(
                    conn, trace.id, here.newest + 1, trace.blocks, start.deadline, here.newest_terms,
                    subagent=start.subagent, caller=here.caller, state=advance.ended.state,
                )  # fmt: skip
            elif here.caller is not None and because in ("returned", "time"):
                assert cursor.last_type is not None
                worked = SubagentDone(index=cursor.index, last_type=cursor.last_type)
                steps.worked(conn, trace.id, here.caller, worked)
            else:
                self._end(conn, trace, because, advance.ended.returned)
                return Progress([], over=True)

    def _delegate(
        self, conn: sa.Connection, trace_id: int, fixed: traces.TraceSpec, step_id: int, step: Delegate
    ) -> list[Message]:
        """Start the trace in which another agent does what a step asks for.

        At once, however many are active: what waits for it holds a place already.
        """
        called, terms = delegation.create(conn, trace_id, step_id, step, fixed.settings)
        trace = traces.lock(conn, called)
        try:
            minutes = self.fixed(conn, called, terms.revision).settings.time_budget
        except RolloutError as error:
            self._fail(conn, trace, error.kind, str(error), None)
            return []
        traces.begin_tick(conn, called, 0, 0, traces.epoch() + 60 * minutes, terms)
        traces.event(conn, called, "started", f"asked for by trace {trace_id}: {step.label}")
        return self._advance(conn, trace).messages

    def _end_tick(
        self, conn: sa.Connection, trace: LockedTrace, start: replay.Start, settings: Settings
    ) -> LockedTrace:
        """Returns the trace's row as it is now."""
        traces.end_tick(conn, trace.id, start.tick)
        steps.forget_results(conn, trace.id, start.tick)
        if settings.tokens != "all":
            candidates.forget_tokens(conn, trace.id, start.tick, settings.tokens)
        trace = replace(trace, ticks=trace.ticks + (start.tick > 0))
        traces.update(conn, trace.id, ticks=trace.ticks)
        return trace

    def _apply(
        self,
        conn: sa.Connection,
        trace: LockedTrace,
        start: replay.Start,
        advance: replay.Advance,
        ids: dict[int, int],
    ) -> LockedTrace:
        """Apply the new effects. Returns the trace's row as it is now."""
        # A fork begins with the blocks that its last step brought; its first advance meets them once more.
        drafts = [
            (effect, block)
            for effect, block in advance.effects
            if isinstance(effect, Append) and block and block.index >= trace.blocks
        ]
        if drafts:
            size = blocks.append(conn, trace.id, start.tick, drafts, ids)
            written = trace.written + sum(draft.candidate is not None for draft, _ in drafts)
            trace = replace(trace, blocks=trace.blocks + len(drafts), bytes=trace.bytes + size, written=written)
            traces.update(conn, trace.id, blocks=trace.blocks, bytes=trace.bytes, written=written)
        for effect, _ in advance.effects:
            if isinstance(effect, Reward):
                traces.reward_tick(conn, trace.id, start.tick, effect.reward)
                blocks.give(conn, trace.id, effect)
            elif isinstance(effect, Note):
                traces.event(conn, trace.id, effect.kind, effect.detail)
            elif isinstance(effect, ToolSaved):
                tools.save(conn, trace.id, effect)
            elif isinstance(effect, ToolCalled):
                tools.used(conn, trace.id, effect)
            elif isinstance(effect, ProgramEvaluated):
                programs.save(conn, trace.id, start.tick, effect, ids)
        return trace

    def _restart(
        self, conn: sa.Connection, trace: LockedTrace, start: replay.Start, run: int, reason: str
    ) -> LockedTrace:
        """Begin the tick anew: the program is another one than that which wrote its journal."""
        if run >= MOST_RESTARTS:
            self._fail(conn, trace, "bug", f"tick {start.tick} was restarted {run} times: {reason}", None)
            return traces.lock(conn, trace.id)
        steps.void(conn, trace.id, start.tick)
        traces.restart_tick(conn, trace.id, start.tick)
        size, written = blocks.drop_from(conn, trace.id, start.blocks)
        forks.retreat(conn, trace.id, start.blocks)
        traces.update(conn, trace.id, blocks=start.blocks, bytes=size, written=written)
        traces.event(conn, trace.id, "tick restarted", reason)
        return traces.lock(conn, trace.id)

    def _end(self, conn: sa.Connection, trace: LockedTrace, because: str, returned: Any) -> None:
        steps.void(conn, trace.id)  # of the callers, where a subagent has spent the trace's budget
        traces.finish(conn, trace.id, TraceStatus.ENDED, because, ended_because=because, returned=returned)

    def _fail(
        self,
        conn: sa.Connection,
        trace: LockedTrace,
        kind: str,
        reason: str,
        evidence: str | None,
        returned: Any = None,
    ) -> None:
        steps.void(conn, trace.id)
        line = " ".join(reason.split())[:500]
        values = {"failure_kind": kind, "failure": line, "returned": returned}
        traces.finish(conn, trace.id, TraceStatus.FAILED, evidence or line, **values)


def waited_for_people(start: replay.Start, entries: Sequence[replay.Entry]) -> float:
    """Seconds of a tick in which it waited for a person: they are not the agent's."""
    clocks = [start.clock, *(entry.at for entry in entries)]
    waits = zip(entries, clocks, strict=False)
    return sum(entry.at - before for entry, before in waits if isinstance(entry.step, AskHuman))


def spent_budget(trace: LockedTrace, start: replay.Start, settings: Settings, now: float) -> str | None:
    """Which budget is spent, or None."""
    if settings.ticks is not None and trace.ticks >= settings.ticks:
        return "ticks"
    if settings.blocks is not None and trace.blocks >= settings.blocks:
        return "blocks"
    if settings.until_bytes is not None and trace.bytes >= settings.until_bytes:
        return "bytes"
    if settings.sampled_tokens is not None and trace.sampled_tokens >= settings.sampled_tokens:
        return "tokens"
    return "time" if now >= start.deadline else None
