"""The journal of steps, and the environments in which code runs."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class StepStatus(enum.StrEnum):
    """ready → running → done | failed; running → ready when the lease expires; any → void when it is withdrawn."""

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
        {"comment": "The journal: everything that a trace asked for, in order, with the results."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    tick: Mapped[int] = column("Number of its tick.")
    run: Mapped[int] = column("Run of the tick, see ticks.run.")
    ordinal: Mapped[int] = column("Position within the tick, from 0.")
    kind: Mapped[str] = column(
        "sample, lint, score, retrieve, execute, consult. No worker claims the kinds work (a subagent's ticks), "
        "delegate (a trace of another agent) and await (a person)."
    )
    label: Mapped[str] = column("Purpose, as Flower shows it: block type, round, number of candidates.")
    status: Mapped[str] = column("ready, running, done, failed or void.", server_default="ready")
    request: Mapped[dict[str, Any]] = json("The request (weavegen/kernel/steps.py).")
    result: Mapped[Any | None] = json("The result. Emptied after the tick if other tables hold it.")
    failure_kind: Mapped[str | None] = column("Kind of the failure: model, environment, ...; null: none.")
    failure: Mapped[str | None] = column("Why it failed, or its last transient error.")
    queue: Mapped[str] = column("Celery queue of its messages.")
    claims: Mapped[int] = column("How often workers claimed it. Fences off old holders.", server_default="0")
    worker: Mapped[str | None] = column("The worker that claimed it last, as host:pid.")
    lease_until: Mapped[datetime.datetime | None] = column("When another worker may claim it.")
    ready_at: Mapped[datetime.datetime] = now("When it became ready.")
    send_after: Mapped[datetime.datetime] = now("When the sweeper sends it again, unless a worker claimed it.")
    claimed_at: Mapped[datetime.datetime | None] = column("When it was last claimed.")
    finished_at: Mapped[datetime.datetime | None] = column("When its result was stored.")
    model_seconds: Mapped[float | None] = column("Seconds of waiting for the model server.")
    environment_seconds: Mapped[float | None] = column("Seconds of waiting for the environment.")
    working_seconds: Mapped[float | None] = column("Seconds from claim to commit, model and environment included.")
    copy_of: Mapped[int | None] = reference(
        "steps.id",
        "In a fork: the step of another trace that this is a copy of, for replay. Costs and prompts are "
        "kept with that step only. Null: no copy.",
        ondelete="SET NULL",
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
    sandbox: Mapped[str] = column("Provider that isolates it: bubblewrap or none.")
    started_at: Mapped[datetime.datetime] = now("When it was started.")
    closed_at: Mapped[datetime.datetime | None] = column("When it was stopped, or found dead.")
