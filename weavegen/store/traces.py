"""Traces in Postgres: queued, started fairly, locked while they advance, ended."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from weavegen import sql
from weavegen.database import Connection, Result
from weavegen.errors import RolloutError, UsageError
from weavegen.kernel.harbor import HarborTask
from weavegen.kernel.mcp import McpServer
from weavegen.kernel.replay import Start
from weavegen.kernel.settings import Settings, settings
from weavegen.kernel.template import Template
from weavegen.store import reports, workers
from weavegen.store.states import TraceStatus
from weavegen.version import __version__

START_LOCK = 0x77656176
"""Advisory lock under which queued traces are started, so that the limit on running traces holds."""
SERVER_LOCK = START_LOCK + 1
"""Advisory lock under which traces are given servers, so that traces which start together spread."""
MAX_REPEATS = 16
"""Ticks to look back for repetitions."""


@dataclass(frozen=True)
class TraceSpec:
    """What never changes about a trace under one revision of its job's settings. Workers keep it in memory."""

    seed: int
    """Seed of its environment. In a fork: the seed of the trace that the line of forks began with."""
    agent: str
    model: str | None
    """The job's model: the one that the user named, else the one that answered first; None: none has answered yet."""
    settings: Settings
    params: dict[str, Any]
    bootstrap: str
    job_id: int
    template: Template | None
    """Chat template of its prompts; None: no model had been asked when this was read."""
    evaluator: str | None
    """Model that answers the yes/no questions; None: the one that writes."""
    packages: str | None
    """Hash of the packages that its code can import; None: the standard library alone."""
    files: str | None
    """Hash of the archive of files with which /app begins; None: none."""
    harbor: str | None
    """Hash of the files of its Harbor task; None: none."""
    harbor_task: HarborTask | None
    mcp_servers: dict[str, McpServer]
    """Those of its job and of its Harbor task, by name."""

    @property
    def judge(self) -> str | None:
        """The model that answers the yes/no questions, as `model` names the one that writes."""
        return self.model if self.evaluator is None else self.evaluator

    @property
    def judged_by_another(self) -> bool:
        """Whether the model that answers the yes/no questions is not the one that writes."""
        return self.judge != self.model

    @property
    def network(self) -> str:
        """What its environment can reach: the job's setting `network`, or nothing if its Harbor task forbids it."""
        steps = () if self.harbor_task is None else self.harbor_task.steps
        return self.settings.network if all(step.agent.internet for step in steps) else "none"


def spec(conn: Connection, trace_id: int, revision: int) -> TraceSpec:
    """Read a trace's unchanging part. Raises RolloutError where this version can't read its job's settings."""
    row = sql.run(conn, "store/trace_spec", trace=trace_id, revision=revision).one()
    try:
        values = settings(row.settings)
    except UsageError as error:
        raise RolloutError(
            f"job {row.job_id} was not made for this version of weavegen, {__version__} ({error}): "
            "upgrade the workers, then `weavegen retry`"
        ) from None
    template = None if row.template is None else msgspec.convert(row.template, Template)
    task = None if row.harbor_task is None else msgspec.convert(row.harbor_task, HarborTask)
    if task is not None:
        minutes = sum(step.agent.seconds for step in task.steps) / 60
        values = msgspec.structs.replace(values, time_budget=min(values.time_budget, minutes))
    servers = msgspec.convert(row.mcp_servers or {}, dict[str, McpServer]) | ({} if task is None else task.mcp_servers)
    others = {"settings": values, "template": template, "harbor_task": task, "mcp_servers": servers}
    return TraceSpec(**row._asdict() | others)


@dataclass(frozen=True)
class LockedTrace:
    """What changes about a trace, read under its lock."""

    id: int
    status: str
    ticks: int
    blocks: int
    bytes: int
    written: int
    sampled_tokens: int


def lock(conn: Connection, trace_id: int) -> LockedTrace:
    """A trace's row, locked until the transaction ends: a trace advances in one place at a time."""
    return LockedTrace(*sql.run(conn, "store/lock_trace", trace=trace_id).one())


def job_of(conn: Connection, trace_id: int) -> int:
    """The job of a trace."""
    return int(sql.run(conn, "store/job_of_trace", trace=trace_id).scalar_one())


def finish(
    conn: Connection,
    trace_id: int,
    status: TraceStatus,
    detail: str,
    *,
    returned: Any,
    ended_because: str | None = None,
    failure_kind: str | None = None,
    failure: str | None = None,
) -> None:
    """End a running trace with this status; `detail` goes into its history."""
    reason = {"ended_because": ended_because, "failure_kind": failure_kind, "failure": failure}
    sql.run(conn, "store/end_trace", trace=trace_id, status=status, returned=returned, **reason)
    event(conn, trace_id, status, detail)


def assign_server(conn: Connection, trace_id: int, urls: Sequence[str], choose: Callable[[dict[str, int]], str]) -> str:
    """The model server of a trace: the one that it has, if `urls` has it, else the one that `choose` returns.

    `choose` gets the number of running traces by server.
    """
    sql.run(conn, "store/advisory_lock", key=SERVER_LOCK)
    server = sql.run(conn, "store/server_of_trace", trace=trace_id).scalar_one()
    if server in urls:
        return str(server)
    server = choose(reports.traces_by_server(conn))
    sql.run(conn, "store/give_server", trace=trace_id, server=server)
    return server


def event(conn: Connection, trace_id: int, kind: str, detail: str | None = None) -> None:
    """Add a line to a trace's history."""
    sql.run(conn, "store/add_event", trace=trace_id, kind=kind, detail=detail)


@dataclass(frozen=True)
class TickSettings:
    """The state of a job when a tick began. It holds for the whole tick, so that all its replays are the same."""

    revision: int
    """Revision of the job's settings."""
    paused_seconds: float
    """How long the job had been paused, in all its pauses."""


@dataclass(frozen=True)
class OpenTick:
    """Where a running trace stands."""

    start: Start
    """Of the open tick."""
    run: int
    """Which run of the tick this is."""
    settings: TickSettings
    """The settings that the tick was begun with."""
    newest_settings: TickSettings
    """The settings that the next tick will begin with."""
    paused: bool
    """Whether the job is paused."""
    caller: int | None
    """Number of the tick whose action waits for this tick's subagent."""
    newest: int
    """Number of the trace's last tick. Higher than this tick's if subagents have had ticks since it began."""
    host: str | None
    """Host of the trace's environment; None before that is started."""
    version: str | None
    """Version of weavegen that began this run."""

    @property
    def paused_seconds(self) -> float:
        """How long the job was paused since the tick began."""
        return self.newest_settings.paused_seconds - self.settings.paused_seconds


def open_tick(conn: Connection, trace: LockedTrace) -> OpenTick:
    """The open tick of a locked trace; where subagents wait for subagents, the innermost one's."""
    # Not part of LOCK: a statement that waited for the lock would see these rows as they were before the wait.
    row = sql.run(conn, "store/open_tick", trace=trace.id).one()
    return OpenTick(
        start=start(row),
        settings=TickSettings(row.revision, row.paused_seconds),
        newest_settings=TickSettings(row.newest_revision, row.newest_paused_seconds),
        **{name: getattr(row, name) for name in ("run", "paused", "caller", "newest", "host", "version")},
    )


def start(row: Any) -> Start:
    """Where a tick starts, from its row with seed and lag of its trace and the type of the block before it."""
    values = row._asdict() | {"tick": row.number, "blocks": row.first_block, "trace_seed": row.seed}
    return msgspec.convert(values | {"inherited": row.inherited or ()}, Start)


def begin_tick(
    conn: Connection, trace_id: int, number: int, terms: TickSettings, *, subagent: str = "main", **values: Any
) -> None:
    """Open the next tick. Its clock starts now, less the lag of the trace's clock.

    `values`: other columns of the table ticks: first_block; caller and state, if any; deadline, or instead of it
    `budget`, seconds from now.
    """
    values = dict.fromkeys(("caller", "state", "deadline", "budget")) | asdict(terms) | values
    values |= {"most_repeats": MAX_REPEATS, "version": __version__}
    sql.run(conn, "store/begin_tick", trace=trace_id, number=number, subagent=subagent, **values)


def of_other_workers(conn: Connection, tick: OpenTick) -> bool:
    """Whether another version of weavegen began a tick and still has live workers, as during an upgrade."""
    if tick.version in (None, __version__):
        return False
    live = (row for row in workers.rows(conn) if row.version == tick.version and not row.silent)
    return any("control" in row.queues for row in live)


def to_start(conn: Connection, max_active: int, at_most: int = 16) -> list[tuple[int, TickSettings]]:
    """Queued traces that start now, marked as running: at most `at_most`, and `max_active` running in all.

    Each free place goes to the job with the fewest running traces. Jobs that are paused or draining start none.
    Running traces of a paused job take no places.
    """
    if not sql.run(conn, "store/try_advisory_lock", key=START_LOCK).scalar_one():
        return []
    rows = sql.run(conn, "store/start_queued_traces", max_active=max_active, at_most=at_most)
    return [(row.id, TickSettings(row.revision, row.paused_seconds)) for row in sorted(rows)]


def cancel_abandoned(conn: Connection) -> None:
    """Cancel delegated traces whose callers no longer wait, because they failed, were cancelled, or started over."""
    _void_cancelled(conn, sql.run(conn, "store/cancel_abandoned"))


def cancel(conn: Connection, job_id: int) -> int:
    """Cancel a job's queued and running traces. What they wrote stays. Returns how many."""
    return _void_cancelled(conn, sql.run(conn, "store/cancel_job", job=job_id))


def _void_cancelled(conn: Connection, cancelled: Result) -> int:
    ids = cancelled.scalars()
    # In a statement of its own: the first may have waited for a trace that was just advancing, and only a later
    # snapshot sees the steps that this has inserted.
    sql.run(conn, "store/withdraw_steps", traces=ids, tick=None)
    return len(ids)
