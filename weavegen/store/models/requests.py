"""What people ask the toolsmith for, and everything that happened to it."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class RequestStatus(enum.StrEnum):
    """NOT_STARTED → IN_PROGRESS ⇄ WAITING_FEEDBACK; IN_PROGRESS → SUCCEEDED | FAILED; see store/requests.py."""

    NOT_STARTED = "NOT_STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    WAITING_FEEDBACK = "WAITING_FEEDBACK"
    """It has asked the user something and waits, for as long as it takes."""
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class Request(Base):
    __tablename__ = "requests"
    __table_args__ = (
        one_of("status", "status", RequestStatus),
        sa.CheckConstraint("(question is not null) = (status = 'WAITING_FEEDBACK')", name="question"),
        sa.Index("ix_requests_asked_by", "asked_by"),
        sa.Index(
            "ix_requests_open",
            "id",
            postgresql_where=sa.text("status in ('NOT_STARTED', 'IN_PROGRESS', 'WAITING_FEEDBACK')"),
        ),
        {"comment": "What users ask the toolsmith for (`weavegen request`), as it stands."},
    )

    id: Mapped[int] = key()
    asked_by: Mapped[str] = column("The user.")
    objective: Mapped[str] = column("What is to be achieved.")
    requirements: Mapped[list[str]] = json("What the result must be or have, a text each.")
    constraints: Mapped[list[str]] = json("What must not be done, and within which bounds, a text each.")
    revision: Mapped[int] = column("How often the user has changed what is asked for.", server_default="0")
    status: Mapped[str] = column(
        "NOT_STARTED, IN_PROGRESS, WAITING_FEEDBACK, SUCCEEDED, FAILED or CANCELED.", server_default="NOT_STARTED"
    )
    question: Mapped[str | None] = column("What it waits to be told; null: it does not wait.")
    result: Mapped[str | None] = column("What came of it; null before it is over, and where nothing did.")
    trace_id: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("traces.id", ondelete="SET NULL"),
        unique=True,
        comment="The trace that works on it; of several tries the last.",
    )
    created_at: Mapped[datetime.datetime] = now("When it was made.")


class RequestChange(Base):
    __tablename__ = "request_changes"
    __table_args__ = (
        one_of("status", "status", RequestStatus),
        {"comment": "Every change of every request, with its reason. Rows are never changed."},
    )

    id: Mapped[int] = key()
    request_id: Mapped[int] = reference("requests.id", "Its request.", index=True)
    at: Mapped[datetime.datetime] = now("When it happened.")
    what: Mapped[str] = column("created, updated, answered, canceled: by the user; status: its trace went on.")
    status: Mapped[str] = column("Its status from then on.")
    reason: Mapped[str] = column("Why: what the user said, what was asked or came of it, why it failed.")
    changed: Mapped[dict[str, Any] | None] = json(
        "Of created and updated: objective, requirements and constraints as they are from then on."
    )
