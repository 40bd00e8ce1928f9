"""Jobs, with their settings, bootstraps and documents."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class JobState(enum.StrEnum):
    """active ⇄ paused, draining, as people set it. It does not say whether the traces are over."""

    ACTIVE = "active"
    PAUSED = "paused"
    """No step of its traces is claimed."""
    DRAINING = "draining"
    """None of its queued traces starts."""


class Job(Base):
    __tablename__ = "jobs"
    __table_args__ = (
        one_of("state", "state", JobState),
        sa.UniqueConstraint("called_by", "agent"),
        {"comment": "Traces that a user enqueued together, with one model and the same settings."},
    )

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name that the user gave it; by default the bootstrap's.")
    agent: Mapped[str] = column("The program that writes the traces: weave, ...")
    model: Mapped[str | None] = column("The model that writes the traces; null: no model was asked yet.")
    asked_model: Mapped[str | None] = column("Model that the user named; null: whichever the servers have.")
    called_by: Mapped[int | None] = reference(
        "jobs.id", "The job that delegates to its traces; null: people enqueued it."
    )
    seed: Mapped[int] = column("Seed of the job, from which every trace's seed is derived.")
    settings: Mapped[dict[str, Any]] = json("The settings that differ from the defaults.")
    version: Mapped[str] = column("Version of weavegen that enqueued it.")
    enqueued_by: Mapped[str | None] = column("Who enqueued it; null: an older version, which did not record it.")
    created_at: Mapped[datetime.datetime] = now("When it was enqueued.")
    state: Mapped[str] = column("active, paused or draining.", server_default="active")
    paused_at: Mapped[datetime.datetime | None] = column("Since when it is paused; null: it is not paused.")
    paused_seconds: Mapped[float] = column("Seconds that it was paused, in all its pauses.", server_default="0")
    revision: Mapped[int] = column("Newest revision of its settings; 0: as it was enqueued.", server_default="0")


class JobSettings(Base):
    __tablename__ = "job_settings"
    __table_args__ = {"comment": "Revisions of settings by `weavegen retune`. Revision 0 is in the table jobs."}

    job_id: Mapped[int] = reference("jobs.id", "Its job.", primary_key=True)
    revision: Mapped[int] = column("From 1.", primary_key=True, autoincrement=False)
    settings: Mapped[dict[str, Any]] = json("The settings that differ from the defaults, as in jobs.settings.")
    created_at: Mapped[datetime.datetime] = now("When the revision was made.")


class Bootstrap(Base):
    __tablename__ = "bootstraps"
    __table_args__ = {"comment": "Bootstrap files by content: the hand-written first tick of a trace."}

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of the source, hexadecimal.", unique=True)
    name: Mapped[str] = column("File name under which it was first enqueued.")
    source: Mapped[str] = column("The file's text.")
    created_at: Mapped[datetime.datetime] = now("When it was first enqueued.")


class Document(Base):
    __tablename__ = "documents"
    __table_args__ = {"comment": "Texts that agents may read, by content."}

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of the text in UTF-8, hexadecimal.", unique=True)
    text: Mapped[str] = column("The text. Lines end with a line feed.")
    characters: Mapped[int] = column("Number of characters.")
    lines: Mapped[int] = column("Number of lines.")
    created_at: Mapped[datetime.datetime] = now("When it was first given to a job.")


class JobDocument(Base):
    __tablename__ = "job_documents"
    __table_args__ = {"comment": "The documents that the agents of a job may read."}

    job_id: Mapped[int] = reference("jobs.id", "Its job.", primary_key=True)
    path: Mapped[str] = column("Path in the job's folder, with slashes.", primary_key=True)
    document_id: Mapped[int] = reference("documents.id", "The text.")
