"""The runs of agents, their ticks, and what happened to them."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class TraceStatus(enum.StrEnum):
    """queued → running → ended | failed | cancelled; queued → cancelled."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Trace(Base):
    __tablename__ = "traces"
    __table_args__ = (
        one_of("status", "status", TraceStatus),
        sa.UniqueConstraint("job_id", "number"),
        sa.Index("ix_traces_queued", "job_id", "id", postgresql_where=sa.text("status = 'queued'")),
        sa.Index("ix_traces_running", "id", "job_id", postgresql_where=sa.text("status = 'running'")),
        sa.Index("ix_traces_retry_of", "retry_of", postgresql_where=sa.text("retry_of is not null")),
        sa.Index("ix_traces_fork_of", "fork_of", postgresql_where=sa.text("fork_of is not null")),
        sa.Index("ix_traces_called_by", "called_by", postgresql_where=sa.text("called_by is not null")),
        sa.CheckConstraint("(fork_of is null) = (fork_at is null)", name="fork"),
        {"comment": "One run of an agent: one long Python file, block by block."},
    )

    id: Mapped[int] = key()
    job_id: Mapped[int] = reference("jobs.id", "Its job.")
    number: Mapped[int] = column("Position in its job, from 1.")
    bootstrap_id: Mapped[int] = reference("bootstraps.id", "Its bootstrap file.", index=True)
    params: Mapped[dict[str, Any]] = json("What the bootstrap reads as args.params.")
    seed: Mapped[int] = column("All that is random in the trace derives from this.")
    status: Mapped[str] = column("queued, running, ended, failed or cancelled.", server_default="queued")
    ended_because: Mapped[str | None] = column(
        "returned, or the budget that was spent: ticks, blocks, bytes, time, ..."
    )
    failure_kind: Mapped[str | None] = column("model, environment, bootstrap or bug, where it failed.")
    failure: Mapped[str | None] = column("Why it failed, in one line.")
    returned: Mapped[Any | None] = json("What the agent returned to its caller, with its task's evaluations.")
    ticks: Mapped[int] = column("Ticks finished, the bootstrap's not counted.", server_default="0")
    blocks: Mapped[int] = column("Blocks recorded.", server_default="0")
    bytes: Mapped[int] = column("Bytes of rendered trace.", server_default="0")
    server: Mapped[str | None] = column("Base URL of the model server that it sticks to; null before it asks one.")
    sampled_tokens: Mapped[int] = column("Tokens sampled from the model, losers included.", server_default="0")
    candidates: Mapped[int] = column("Candidates sampled for blocks, losers included.", server_default="0")
    written: Mapped[int] = column("Blocks recorded that were made of a candidate.", server_default="0")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    started_at: Mapped[datetime.datetime | None] = column("When its first step was made ready.")
    finished_at: Mapped[datetime.datetime | None] = column("When it ended, failed or was cancelled.")
    restarts: Mapped[int] = column(
        "Ticks that were started over; blocks change with these alone.", server_default="0"
    )
    retry_of: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("traces.id", ondelete="SET NULL"),
        comment="The trace that it does over, which failed or was cancelled.",
    )
    # Without "on delete": a trace whose forks are still there can't be deleted.
    fork_of: Mapped[int | None] = mapped_column(
        sa.BigInteger, sa.ForeignKey("traces.id"), comment="The trace whose first blocks it shares; null: no fork."
    )
    fork_at: Mapped[int | None] = column(
        "Of a fork: its blocks below this index are copies of the other trace's; it wrote those from here on."
    )
    called_by: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("steps.id", ondelete="SET NULL", use_alter=True),
        comment="The step of another trace that asked for it and waits for what it returns; null: none.",
    )
    shared_bytes: Mapped[int] = column(
        "Of its bytes, those of such copies; 0 before it starts.", server_default="0"
    )
    lag: Mapped[float] = column(
        "Seconds that its clock is behind: a fork's goes on from the moment at which the other trace stood there.",
        server_default="0",
    )


class Subagent(Base):
    __tablename__ = "subagents"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "name"),
        {"comment": "The agents of a trace: main, and those that it made. The rows of the problem map."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    name: Mapped[str] = column("Its name, unique in the trace.")
    parent: Mapped[str | None] = column("Name of the subagent that made it; null for main.")
    description: Mapped[str] = column("Its task.")
    schema: Mapped[dict[str, Any]] = json("What it must return.")
    time_budget: Mapped[float] = column("Minutes.")
    completed: Mapped[bool] = column("Whether it has returned to its caller.")
    returned: Mapped[Any | None] = json("What it returned; null before.")


class Tick(Base):
    __tablename__ = "ticks"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "number"),
        sa.Index(
            "ix_ticks_finished", "finished_at", "id", postgresql_where=sa.text("finished_at is not null")
        ),  # for whoever follows what is finished: weavegen spans
        {"comment": "Turns of an agent. Number 0 is the bootstrap's own."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    number: Mapped[int] = column("Position in the trace, from 0.")
    subagent: Mapped[str] = column("Name of the subagent whose tick it is.")
    caller: Mapped[int | None] = column("Number of the tick whose action waits for this subagent; null for main.")
    deadline: Mapped[float] = column("When the subagent's time is up, seconds since the epoch.")
    run: Mapped[int] = column(
        "How often it was started over, after the software changed under it.", server_default="0"
    )
    revision: Mapped[int] = column("Of the job's settings that it was begun with.", server_default="0")
    paused_seconds: Mapped[float] = column("For how long the job had been paused by then.", server_default="0")
    inherited: Mapped[Any | None] = json(
        "Of a tick in which its trace was forked off: under which terms others wrote the blocks before, in order: "
        "until (the index behind them), seed, lag, revision. Null: it is all its trace's own."
    )
    state: Mapped[Any | None] = json("What the tick before handed on to this one; null: nothing.")
    first_block: Mapped[int] = column("Index of its first block.")
    repeats: Mapped[int] = column("Ticks in a row before it with equal actions and outcomes.", server_default="0")
    clock: Mapped[float] = column("When it began, seconds since the epoch: the program's clock starts here.")
    reward: Mapped[float | None] = column("0 to 0.5; null while it runs.")
    finished_at: Mapped[datetime.datetime | None] = column("When it was over.")


class Event(Base):
    __tablename__ = "events"
    __table_args__ = {"comment": "The history of a trace, for people: what happened to it besides its blocks."}

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    at: Mapped[datetime.datetime] = now("When.")
    kind: Mapped[str] = column("started, ended, failed, cancelled, tick restarted, ...")
    detail: Mapped[str | None] = column("More, in one line.")
