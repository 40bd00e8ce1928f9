"""What a user enqueued."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class JobState(enum.StrEnum):
    """active ⇄ paused, draining: what people want of a job. Whether its traces are over is another matter."""

    ACTIVE = "active"
    PAUSED = "paused"
    """No step of its traces is taken."""
    DRAINING = "draining"
    """No further trace of it starts."""


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        one_of("state", "state", JobState),
        sa.UniqueConstraint("called_by", "agent"),
        {"comment": "What a user enqueued in one go: traces that share a model and settings."},
    )

    id: Mapped[int] = key()
    name: Mapped[str] = column("What the user called it; the bootstrap's name by default.")
    agent: Mapped[str] = column("The program that writes the traces: weave, ...")
    model: Mapped[str | None] = column("The model that writes it; null: none was asked yet.")
    asked_model: Mapped[str | None] = column("Model asked for; null: whichever the servers have.")
    called_by: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("jobs.id", ondelete="CASCADE"),
        comment="The job whose traces ask for the traces of this one; null: people enqueued it.",
    )
    seed: Mapped[int] = column("Seed of the job, from which every trace's seed is derived.")
    settings: Mapped[dict[str, Any]] = json("The settings that differ from the defaults.")
    version: Mapped[str] = column("Version of weavegen that enqueued it.")
    enqueued_by: Mapped[str | None] = column("Who enqueued it; null: that was not kept yet.")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    state: Mapped[str] = column("active, paused or draining.", server_default="active")
    paused_at: Mapped[datetime.datetime | None] = column("Since when it is paused; null: it is not.")
    paused_seconds: Mapped[float] = column("For how long it was paused, in all its pauses.", server_default="0")
    revision: Mapped[int] = column("Newest revision of its settings; 0: as it was enqueued.", server_default="0")


class JobSettings(Base):
    __tablename__ = "job_settings"
    __table_args__ = {"comment": "What `weavegen retune` made of a job's settings, all revisions but the first."}

    job_id: Mapped[int] = reference("jobs.id", "Its job.", primary_key=True)
    revision: Mapped[int] = column("From 1.", primary_key=True, autoincrement=False)
    settings: Mapped[dict[str, Any]] = json("All that differ from the defaults, as in jobs.settings.")
    created_at: Mapped[datetime.datetime] = now("When it was given.")


class Bootstrap(Base):
    __tablename__ = "bootstraps"
    __table_args__ = {"comment": "Bootstrap files by content: the hand-written first tick of a trace."}

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of the source, hexadecimal.", unique=True)
    name: Mapped[str] = column("File name under which it was first enqueued.")
    source: Mapped[str] = column("The file's text.")
    created_at: Mapped[datetime.datetime] = now("When it was first enqueued.")
