"""Traces, their ticks, and their history."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

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
        {"comment": "Traces: everything that one agent writes, block by block."},
    )

    id: Mapped[int] = key()
    job_id: Mapped[int] = reference("jobs.id", "Its job.")
    number: Mapped[int] = column("Position in its job, from 1.")
    bootstrap_id: Mapped[int] = reference("bootstraps.id", "Its bootstrap file.", index=True)
    params: Mapped[dict[str, Any]] = json("Parameters that the bootstrap reads as args.params.")
    seed: Mapped[int] = column("Seed from which all randomness of the trace derives.")
    status: Mapped[str] = column("queued, running, ended, failed or cancelled.", server_default="queued")
    ended_because: Mapped[str | None] = column("returned, or the spent budget: ticks, blocks, bytes, time, ...")
    failure_kind: Mapped[str | None] = column("model, environment, bootstrap or bug, if it failed.")
    failure: Mapped[str | None] = column("Why it failed, in one line.")
    returned: Mapped[Any | None] = json("What the agent returned to its caller, with the evaluations of its task.")
    ticks: Mapped[int] = column("Finished ticks, without the bootstrap's.", server_default="0")
    blocks: Mapped[int] = column("Blocks recorded.", server_default="0")
    bytes: Mapped[int] = column("Bytes of the rendered trace.", server_default="0")
    server: Mapped[str | None] = column("Base URL of its model server; null before it asks one.")
    sampled_tokens: Mapped[int] = column("Sampled tokens, with those of rejected candidates.", server_default="0")
    candidates: Mapped[int] = column("Candidates sampled for blocks, rejected ones included.", server_default="0")
    written: Mapped[int] = column("Recorded blocks that were made of a candidate.", server_default="0")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    started_at: Mapped[datetime.datetime | None] = column("When its first step became ready.")
    finished_at: Mapped[datetime.datetime | None] = column("When it ended, failed or was cancelled.")
    restarts: Mapped[int] = column("Ticks that were started over. Only these drop blocks.", server_default="0")
    retry_of: Mapped[int | None] = reference("traces.id", "The trace that it is a retry of.", ondelete="SET NULL")
    # Without "on delete": a trace whose forks are still there can't be deleted.
    fork_of: Mapped[int | None] = reference("traces.id", "The trace whose first blocks it shares.", ondelete=None)
    fork_at: Mapped[int | None] = column("In a fork: blocks below this index are copies.")
    called_by: Mapped[int | None] = reference(
        "steps.id",
        "The step of another trace that delegated to it and waits for what it returns; null: none.",
        ondelete="SET NULL",
        use_alter=True,
    )
    shared_bytes: Mapped[int] = column("Bytes of these copies; 0 before it starts.", server_default="0")
    lag: Mapped[float] = column(
        "Seconds that its clock is behind: a fork's clock goes on from the time of the other trace at the cut.",
        server_default="0",
    )


class Subagent(Base):
    __tablename__ = "subagents"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "name"),
        {"comment": "The subagents of a trace: main, and those that it made. The rows of the problem map."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    name: Mapped[str] = column("Its name, unique in the trace.")
    parent: Mapped[str | None] = column("Name of the subagent that made it; null for main.")
    description: Mapped[str] = column("The task of the subagent.")
    schema: Mapped[dict[str, Any]] = json("Schema of what it must return.")
    time_budget: Mapped[float] = column("Time budget in minutes.")
    completed: Mapped[bool] = column("Whether it has returned to its caller.")
    returned: Mapped[Any | None] = json("What it returned; null: it has not returned yet.")


class Tick(Base):
    __tablename__ = "ticks"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "number"),
        sa.Index(
            "ix_ticks_finished", "finished_at", "id", postgresql_where=sa.text("finished_at is not null")
        ),  # for weavegen spans, which follows finished ticks
        {"comment": "Ticks: turns of an agent. Number 0 is the bootstrap's own."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    number: Mapped[int] = column("Position in the trace, from 0.")
    subagent: Mapped[str] = column("Name of the subagent whose tick it is.")
    caller: Mapped[int | None] = column("Number of the tick whose action waits for this subagent; null for main.")
    deadline: Mapped[float] = column("When the subagent's time budget ends, in seconds since the epoch.")
    run: Mapped[int] = column("How often it was started over, after an upgrade.", server_default="0")
    revision: Mapped[int] = column("Revision of the job's settings that it uses.", server_default="0")
    paused_seconds: Mapped[float] = column("Seconds that the job was paused before it.", server_default="0")
    inherited: Mapped[Any | None] = json(
        "In a tick that a fork continues: who wrote its first blocks, in order, as objects with until (the index "
        "after these blocks), seed, lag and revision. Null: the trace wrote all of it."
    )
    state: Mapped[Any | None] = json("Value that the tick before passed to this one; null: none.")
    first_block: Mapped[int] = column("Index of its first block.")
    repeats: Mapped[int] = column("Ticks in a row before it with equal actions and outcomes.", server_default="0")
    clock: Mapped[float] = column("When it began, in seconds since the epoch. The program's clock starts here.")
    reward: Mapped[float | None] = column("Reward, 0 to 0.5; null while it runs.")
    finished_at: Mapped[datetime.datetime | None] = column("When it was over.")


class Event(Base):
    __tablename__ = "events"
    __table_args__ = {"comment": "The history of traces, for people: events other than blocks."}

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    at: Mapped[datetime.datetime] = now("When it happened.")
    kind: Mapped[str] = column("started, ended, failed, cancelled, tick restarted, ...")
    detail: Mapped[str | None] = column("Details, in one line.")
