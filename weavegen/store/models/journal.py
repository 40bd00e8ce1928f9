"""The journal: what agents asked for, and where their code runs."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class StepStatus(enum.StrEnum):
    """ready → running → done | failed; running → ready when its lease ran out; any → void when it is overtaken."""

    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    VOID = "void"


class Step(Base):
    __tablename__ = "steps"
    __table_args__ = (
        one_of("status", "status", StepStatus),
        sa.UniqueConstraint("trace_id", "tick", "run", "ordinal"),
        sa.Index("ix_steps_open", "trace_id", postgresql_where=sa.text("status in ('ready', 'running')")),
        sa.Index("ix_steps_copy_of", "copy_of", postgresql_where=sa.text("copy_of is not null")),
        {"comment": "The journal: everything an agent asked for, in order, and what came of it."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    tick: Mapped[int] = column("Number of its tick.")
    run: Mapped[int] = column("Which run of the tick, see ticks.run.")
    ordinal: Mapped[int] = column("Position within the tick, from 0.")
    kind: Mapped[str] = column(
        "sample, lint, score, retrieve, execute, consult; or what no worker takes: work (a subagent's ticks), "
        "delegate (a trace of another agent), await (a person)."
    )
    label: Mapped[str] = column("What for, as Flower shows it: block type, round, number of candidates.")
    status: Mapped[str] = column("ready, running, done, failed or void.", server_default="ready")
    request: Mapped[dict[str, Any]] = json("What was asked for (weavegen/kernel/steps.py).")
    result: Mapped[Any | None] = json(
        "What came of it; emptied when the tick is over, as the other tables hold it."
    )
    failure_kind: Mapped[str | None] = column("model or environment, where it can't be done at all.")
    failure: Mapped[str | None] = column("Why not; also the last transient error of a step that is tried again.")
    queue: Mapped[str] = column("Celery queue that it is sent to.")
    claims: Mapped[int] = column(
        "How often a worker took it; the fence against workers that lost it.", server_default="0"
    )
    worker: Mapped[str | None] = column("Who took it last.")
    lease_until: Mapped[datetime.datetime | None] = column("After this it is given to another worker.")
    ready_at: Mapped[datetime.datetime] = now("When it was asked for.")
    send_after: Mapped[datetime.datetime] = now("The sweeper sends it again after this, if nobody took it.")
    claimed_at: Mapped[datetime.datetime | None] = column("When it was taken last.")
    finished_at: Mapped[datetime.datetime | None] = column("When its result was stored.")
    model_seconds: Mapped[float | None] = column("Time spent waiting for the model server.")
    environment_seconds: Mapped[float | None] = column("Time spent waiting for the environment.")
    working_seconds: Mapped[float | None] = column("Time from claim to commit, model and environment included.")
    copy_of: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("steps.id", ondelete="SET NULL"),
        comment="In a fork: the step of another trace that this is a copy of, for replay; what it cost and what "
        "the model was asked in it is kept there alone. Null: its trace's own.",
    )


class Environment(Base):
    __tablename__ = "environments"
    __table_args__ = (
        sa.Index("ix_environments_open", "host", postgresql_where=sa.text("closed_at is null")),
        sa.Index("uq_environments_open", "trace_id", unique=True, postgresql_where=sa.text("closed_at is null")),
        {"comment": "The live Python processes in which traces run their code."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    host: Mapped[str] = column("Host that it runs on; its steps go to the queue execute.<host>.")
    pid: Mapped[int] = column("Process on that host.")
    sandbox: Mapped[str] = column("How it is isolated: bubblewrap or none.")
    started_at: Mapped[datetime.datetime] = now("When it was started.")
    closed_at: Mapped[datetime.datetime | None] = column("When it was stopped, or found dead.")
