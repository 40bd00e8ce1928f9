"""The engine: from the result of a step to the next steps, in one transaction.

A worker claims a step, does its work with no transaction open, and calls `finish`. That stores the result by
compare-and-set, replays the trace's tick over its journal (kernel/replay.py), applies the new effects, inserts
the new steps and commits. It returns messages to send after the commit.
"""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import psycopg

from weavegen import sql
from weavegen.agents import AGENTS, Tick, harbor
from weavegen.database import Connection, Database
from weavegen.engine import forking
from weavegen.errors import JournalMismatch, RolloutError
from weavegen.kernel.replay import Advance, Cursor, Entry, Start
from weavegen.kernel.replay import replay as replay_program
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import (
    Append,
    AskHuman,
    Delegate,
    Delegated,
    Ended,
    Note,
    ProgramEvaluated,
    Reward,
    RunSubagent,
    SubagentDone,
    ToolCalled,
    ToolSaved,
)
from weavegen.store import blocks, delegation, programs, steps, tools, traces
from weavegen.store.states import StepStatus, TraceStatus
from weavegen.store.steps import Claimed, Message
from weavegen.store.traces import LockedTrace, OpenTick, TickSettings, TraceSpec
from weavegen.version import __version__

log = logging.getLogger(__name__)
MAX_SPECS = 4096  # trace specifications that a process keeps in memory
MAX_RESTARTS = 3
"""Restarts of one tick because the software has changed. After one more the trace fails."""
MAX_FAILURE_CHARS = 500
NOBODY = "Nobody can be asked here: decide yourself, and say so in the result."
UNSTORABLE = (psycopg.DataError, psycopg.IntegrityError, UnicodeEncodeError)
"""What is raised for a NUL, half a surrogate pair or a row that is there: the database would refuse it every time."""
Save = Callable[[Connection], None]
"""Writes the parts of a step's result into their own tables."""


@dataclass(frozen=True)
class Progress:
    """What remains to be done once an advance is committed."""

    messages: list[Message]
    over: bool = False
    """The trace has ended: another may start, and its environment is to be closed."""


class Engine:
    """Advances traces. All its state is in Postgres; what it keeps in memory is a cache."""

    def __init__(self, db: Database, *, max_active: int, resend: float) -> None:
        self.db = db
        self.max_active = max_active
        self.resend = resend
        """Seconds after which a step that no worker has claimed is sent again."""
        self._specs: dict[tuple[int, int], TraceSpec] = {}

    def spec(self, conn: Connection, trace_id: int, revision: int) -> TraceSpec:
        """What never changes about a trace under one revision of its job's settings.

        Raises RolloutError where a newer version of weavegen wrote what this version does not know.
        """
        key = trace_id, revision
        if key not in self._specs:
            spec = traces.spec(conn, trace_id, revision)
            if spec.agent not in AGENTS:
                raise RolloutError(f"this version of weavegen has no agent {spec.agent}: upgrade the workers")
            if len(self._specs) >= MAX_SPECS:
                self._specs.clear()
            if spec.model is None:  # the first answer names it
                return spec
            self._specs[key] = spec
        return self._specs[key]

    def finish(self, claim: Claimed, status: StepStatus, save: Save | None = None, **values: Any) -> Progress:
        """Store the result of a step, with its parts by `save`, and advance its trace.

        Raises StepLost where another worker has the step.
        """
        with self.db.begin() as conn:
            trace = traces.lock(conn, claim.trace_id)
            steps.finish(conn, claim, status, **values)
            if save is not None:
                save(conn)
            return self._advance(conn, trace)

    def advance(self, trace_id: int) -> Progress:
        """Advance a trace whose steps are all done. Does nothing where some are not."""
        with self.db.begin() as conn:
            return self._advance(conn, traces.lock(conn, trace_id))

    def start_queued(self) -> list[Message]:
        """Start queued traces while fewer than `max_active` run."""
        with self.db.begin() as conn:
            messages: list[Message] = []
            for trace_id, settings in traces.to_start(conn, self.max_active):
                try:
                    with conn.transaction():  # a savepoint: what the database refuses fails this trace alone
                        messages += self._start(conn, trace_id, settings)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    raise
                except Exception as error:
                    log.exception("trace %d: its first step can't be stored", trace_id)
                    reason = str(error).partition("\n")[0]
                    self._fail(conn, traces.lock(conn, trace_id), "bug", f"its first step can't be stored: {reason}")
            return messages

    def _start(
        self, conn: Connection, trace_id: int, tick_settings: TickSettings, caller: str | None = None
    ) -> list[Message]:
        """Begin a trace's first tick. `caller`: who asked for a delegated trace, for the trace's history."""
        trace = traces.lock(conn, trace_id)
        try:
            spec = self.spec(conn, trace_id, tick_settings.revision)
            fork = forking.begin(conn, trace_id, tick_settings)
        except RolloutError as error:
            self._fail(conn, trace, error.kind, str(error))
            return []
        if fork is None:
            traces.begin_tick(conn, trace_id, 0, tick_settings, first_block=0, budget=60 * spec.settings.time_budget)
        else:
            trace = traces.lock(conn, trace_id)
        network = "on the host's network" if spec.network == "host" else None
        traces.event(conn, trace_id, "started", caller or ", ".join(filter(None, (fork, network))) or None)
        return self._advance(conn, trace).messages

    def _advance(self, conn: Connection, trace: LockedTrace) -> Progress:
        """Replay the open tick; do what it asks for; where it has ended, open the next and go on."""
        if trace.status != TraceStatus.RUNNING:
            return Progress([])
        while trace.status == TraceStatus.RUNNING:
            tick = traces.open_tick(conn, trace)
            if traces.of_other_workers(conn, tick):  # the sweeper asks again, until one of them does it
                return Progress([])
            try:
                turn = self._replay(conn, trace, tick)
            except JournalMismatch as error:
                trace = self._restart_tick(conn, trace, tick, str(error))
                continue
            except RolloutError as error:
                return self._fail(conn, trace, error.kind, str(error))
            except Exception as error:
                # A bug in a program ends its own trace, with the evidence, and no other.
                log.exception("trace %d: its program failed", trace.id)
                return self._fail(conn, trace, "bug", f"{type(error).__name__}: {error}", traceback.format_exc())
            trace = self._apply(conn, trace, tick, turn)
            if turn.advance.steps:
                messages = self._insert(conn, trace, tick, turn)
                if messages is not None:
                    return Progress(messages)
            elif turn.advance.ended is None:
                return Progress([])
            else:
                trace = self._end_tick(conn, trace, tick, turn)
                self._follow_tick(conn, trace, tick, turn, turn.advance.ended)
                trace = traces.lock(conn, trace.id)
        return Progress([], over=True)

    def _replay(self, conn: Connection, trace: LockedTrace, tick: OpenTick) -> "Turn":
        """Run the tick's program over its journal. Raises JournalMismatch where another program wrote the journal."""
        start = tick.start
        spec = self.spec(conn, trace.id, tick.settings.revision)
        newest = self.spec(conn, trace.id, tick.newest_settings.revision).settings
        entries, ids = steps.load(conn, trace.id, start.tick, tick.run)
        inherited = tuple(self.spec(conn, trace.id, part.revision).settings for part in start.inherited)
        cursor = Cursor(start)
        listed = steps.listed_tools(conn, trace.id) if spec.mcp_servers and start.tick > 0 else None
        mcp = bool(spec.mcp_servers)
        tick_input = Tick(spec.settings, cursor, spec.bootstrap, inherited, mcp=mcp, listed=listed)
        program = AGENTS[spec.agent].program(tick_input)
        if spec.harbor_task is not None and (verified := harbor.verification_of(start.state)) is not None:
            program = harbor.verify(tick_input, spec.harbor_task, verified)
        advance = replay_program(program, cursor, entries)
        following = next((block.index for _, block in advance.effects if block is not None), cursor.index)
        if following != trace.blocks and not inherited:
            raise JournalMismatch(f"tick {start.tick}: block {following} follows {trace.blocks} blocks")
        return Turn(spec, newest, inherited, entries, ids, cursor, advance)

    def _apply(self, conn: Connection, trace: LockedTrace, tick: OpenTick, turn: "Turn") -> LockedTrace:
        """Store the new effects. Returns the trace's row as it is now."""
        effects, number = turn.advance.effects, tick.start.tick
        # A fork starts with the blocks that its last step produced; its first advance meets them again.
        drafts = [
            (one, block) for one, block in effects if isinstance(one, Append) and block and block.index >= trace.blocks
        ]
        if drafts:
            size = blocks.append(conn, trace.id, number, drafts, turn.ids)
            written = trace.written + sum(draft.candidate is not None for draft, _ in drafts)
            trace = replace(trace, blocks=trace.blocks + len(drafts), bytes=trace.bytes + size, written=written)
            counts = {"blocks": trace.blocks, "bytes": trace.bytes, "written": written}
            sql.run(conn, "store/count_blocks", trace=trace.id, **counts)
        for effect, _ in effects:
            match effect:
                case Reward():
                    blocks.save_rewards(conn, trace.id, number, effect)
                case Note():
                    traces.event(conn, trace.id, effect.kind, effect.detail)
                case ToolSaved():
                    tools.save(conn, trace.id, effect)
                case ToolCalled():
                    sql.run(conn, "store/count_tool_use", trace=trace.id, **msgspec.structs.asdict(effect))
                case ProgramEvaluated():
                    programs.save(conn, trace.id, number, effect, turn.ids)
        return trace

    def _insert(self, conn: Connection, trace: LockedTrace, tick: OpenTick, turn: "Turn") -> list[Message] | None:
        """Insert the next steps. Returns the messages to send; None where the trace can go on at once: a subagent's
        tick was opened, or nobody does what was asked for."""
        start, new_steps = tick.start, turn.advance.steps
        # Nothing of a paused job is sent; the sweeper sends it as soon as the job is resumed.
        resend = 0.0 if tick.paused else self.resend
        inserted = steps.insert_ready(conn, trace.id, start.tick, tick.run, new_steps, tick.host, resend)
        first = new_steps[0][1]
        if isinstance(first, RunSubagent):
            deadline = min(start.deadline + tick.paused_seconds, turn.cursor.now + 60 * first.minutes)
            traces.begin_tick(
                conn, trace.id, tick.newest + 1, tick.newest_settings, first_block=trace.blocks, deadline=deadline,
                subagent=first.subagent, caller=start.tick,
            )  # fmt: skip
            return None
        messages, refused = [], 0
        for message, (_, step) in zip(inserted, new_steps, strict=True):
            if step.queue is not None:
                messages.append(message)
            elif isinstance(step, Delegate):
                started = self._delegate(conn, trace.id, turn.spec, message.step_id, step)
                messages += started or []
                refused += started is None
            elif isinstance(step, AskHuman) and start.lag:  # a fork: the request belongs to the other trace
                refused += steps.answer(conn, trace.id, NOBODY)
        if refused == len(new_steps):
            return None
        return [] if tick.paused else messages

    def _delegate(
        self, conn: Connection, trace_id: int, spec: TraceSpec, step_id: int, step: Delegate
    ) -> list[Message] | None:
        """Start the trace in which another agent does the task of a step. None: there are too many already.

        It starts at once, however many traces are active: the trace that waits for it is active already.
        """
        given = int(sql.run(conn, "store/delegated_traces", trace=trace_id).scalar_one())
        if given >= (most := spec.settings.delegated_traces):
            error = f"other agents have been given {most} tasks, and the setting delegated_traces allows no more"
            sql.run(conn, "store/end_step", step=step_id, result=Delegated(error=error))
            traces.event(conn, trace_id, "delegation refused", f"{step.agent}: {step.label}: {error}")
            return None
        delegate_id, tick_settings = delegation.create(conn, trace_id, step_id, step, spec.settings)
        return self._start(conn, delegate_id, tick_settings, f"asked for by trace {trace_id}: {step.label}")

    def _end_tick(self, conn: Connection, trace: LockedTrace, tick: OpenTick, turn: "Turn") -> LockedTrace:
        """Close the tick. Returns the trace's row as it is now."""
        number, keep_tokens = tick.start.tick, turn.spec.settings.tokens
        ticks = trace.ticks + (number > 0)
        tokens = sql.run(conn, "store/end_tick", trace=trace.id, tick=number, ticks=ticks).scalar_one()
        sql.run(conn, "store/forget_results", trace=trace.id, tick=number, kinds=steps.COPIED)
        if keep_tokens != "all":
            sql.run(conn, "store/forget_tokens", trace=trace.id, tick=number, keep=keep_tokens)
        return replace(trace, ticks=ticks, sampled_tokens=tokens)

    def _follow_tick(self, conn: Connection, trace: LockedTrace, tick: OpenTick, turn: "Turn", ended: Ended) -> None:
        """After a tick: open the next one, return to the calling tick, or end the trace."""
        start, caller = replace(tick.start, deadline=tick.start.deadline + turn.extra_seconds(tick)), tick.caller
        returned = ended.returned if caller is None else None  # its caller has what a subagent returns
        verified = harbor.verification_of(start.state)
        unverified = turn.spec.harbor_task is not None and verified is None
        # An agent that wrote nothing was refused by its server: the tests would only say that nothing was done.
        if ended.failed is not None and not (unverified and returned is not None and start.tick > 1):
            self._fail(conn, trace, ended.failed, ended.reason or "", returned=returned)
            return
        # A tick keeps the settings that it began with; the newest ones decide whether another follows.
        reason = ended.failed or spent_budget(trace, start, turn.newest, turn.cursor.now)
        if ended.done and ended.failed is None and (caller is None or reason in (None, "time")):
            reason = "returned"
        state, subagent_is_over = ended.state, caller is not None and reason in ("returned", "time")
        if verified is not None and reason is not None:
            reason = verified.because
        elif unverified and reason is not None and not subagent_is_over:
            state = harbor.verification(start.state, reason, returned, ended.reason)
            start, caller, reason = replace(start, subagent="main"), None, None
        if reason is None:
            traces.begin_tick(
                conn, trace.id, tick.newest + 1, tick.newest_settings, first_block=trace.blocks,
                deadline=start.deadline, subagent=start.subagent, caller=caller, state=state,
            )  # fmt: skip
        elif subagent_is_over:
            assert turn.cursor.last_type is not None
            done = SubagentDone(index=turn.cursor.index, last_type=turn.cursor.last_type)
            sql.run(conn, "store/end_steps_of_kind", trace=trace.id, kind="work", tick=caller, result=done)
        else:
            # Those of the callers, where a subagent has spent the trace's budget.
            sql.run(conn, "store/withdraw_steps", traces=[trace.id], tick=None)
            traces.finish(conn, trace.id, TraceStatus.ENDED, reason, ended_because=reason, returned=returned)

    def _restart_tick(self, conn: Connection, trace: LockedTrace, tick: OpenTick, reason: str) -> LockedTrace:
        """Begin the tick again, because its program is not the one that wrote its journal."""
        start = tick.start
        if tick.run >= MAX_RESTARTS:
            self._fail(conn, trace, "bug", f"tick {start.tick} was restarted {tick.run} times: {reason}")
            return traces.lock(conn, trace.id)
        sql.run(conn, "store/withdraw_steps", traces=[trace.id], tick=start.tick)
        sql.run(conn, "store/restart_tick", trace=trace.id, tick=start.tick, version=__version__)
        size, written = blocks.drop_from(conn, trace.id, start.blocks)
        for query in ("unshare_trace", "unshare_ticks"):  # a fork shares nothing any more from there on
            sql.run(conn, f"store/{query}", trace=trace.id, first=start.blocks)
        sql.run(conn, "store/count_blocks", trace=trace.id, blocks=start.blocks, bytes=size, written=written)
        traces.event(conn, trace.id, "tick restarted", reason)
        return traces.lock(conn, trace.id)

    def _fail(
        self, conn: Connection, trace: LockedTrace, kind: str, reason: str, evidence: str = "", returned: Any = None
    ) -> Progress:
        """End a trace as failed, with the reason in one line. `evidence`: for its history, instead of the reason."""
        sql.run(conn, "store/withdraw_steps", traces=[trace.id], tick=None)
        line = " ".join(reason.split())[:MAX_FAILURE_CHARS]
        reasons = {"failure_kind": kind, "failure": line}
        traces.finish(conn, trace.id, TraceStatus.FAILED, evidence or line, returned=returned, **reasons)
        return Progress([], over=True)


@dataclass(frozen=True)
class Turn:
    """One replay of a tick, with what it was given."""

    spec: TraceSpec
    newest: Settings
    """The job's settings now; the tick was begun under those of `spec`."""
    inherited: tuple[Settings, ...]
    """In a fork: the settings under which other traces wrote the tick's first blocks."""
    entries: Sequence[Entry]
    ids: dict[int, int]
    """Ids of the journal's steps, by ordinal."""
    cursor: Cursor
    advance: Advance

    def extra_seconds(self, tick: OpenTick) -> float:
        """Seconds to add to the deadline after the tick: pauses, people's answers, verifications, more time budget."""
        clocks = [tick.start.clock, *(entry.at for entry in self.entries)]
        waits = zip(self.entries, clocks, strict=False)
        seconds = tick.paused_seconds + sum(one.at - before for one, before in waits if isinstance(one.step, AskHuman))
        if harbor.verification_of(tick.start.state) is not None:  # the agent has no part in such a tick
            seconds = self.cursor.now - tick.start.clock
        if tick.caller is None:
            begun_under = self.inherited[0] if self.inherited else self.spec.settings
            seconds += 60 * (self.newest.time_budget - begun_under.time_budget)
        return seconds


def spent_budget(trace: LockedTrace, start: Start, settings: Settings, now: float) -> str | None:
    """Name of the budget that is spent, or None."""
    budgets = (
        ("ticks", trace.ticks, settings.ticks),
        ("blocks", trace.blocks, settings.blocks),
        ("bytes", trace.bytes, settings.until_bytes),
        ("tokens", trace.sampled_tokens, settings.sampled_tokens),
        ("time", now, start.deadline),
    )
    return next((name for name, spent, limit in budgets if limit is not None and spent >= limit), None)
