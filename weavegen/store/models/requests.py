"""Requests to the toolsmith, and all changes of them."""

import datetime
import enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, json, key, now, one_of, reference


class RequestStatus(enum.StrEnum):
    """NOT_STARTED → IN_PROGRESS ⇄ WAITING_FEEDBACK; IN_PROGRESS → SUCCEEDED | FAILED. See store/requests.py."""

    NOT_STARTED = "NOT_STARTED"
    IN_PROGRESS = "IN_PROGRESS"
    WAITING_FEEDBACK = "WAITING_FEEDBACK"
    """It has asked the user something and waits without a time limit."""
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
        {"comment": "Requests of users to the toolsmith (`weavegen request`)."},
    )

    id: Mapped[int] = key()
    asked_by: Mapped[str] = column("The user.")
    objective: Mapped[str] = column("The objective.")
    requirements: Mapped[list[str]] = json("Requirements of the result, a text each.")
    constraints: Mapped[list[str]] = json("Constraints on the work, a text each.")
    revision: Mapped[int] = column("How often the user has changed the request.", server_default="0")
    status: Mapped[str] = column(
        "NOT_STARTED, IN_PROGRESS, WAITING_FEEDBACK, SUCCEEDED, FAILED or CANCELED.", server_default="NOT_STARTED"
    )
    question: Mapped[str | None] = column("The question that it waits for an answer to; null: it does not wait.")
    result: Mapped[str | None] = column("The result; null: none, or it is not over.")
    trace_id: Mapped[int | None] = reference(
        "traces.id", "The trace that works on it. After a retry: the newest.", ondelete="SET NULL", unique=True
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
    what: Mapped[str] = column("created, updated, answered or canceled by the user; status: changed by its trace.")
    status: Mapped[str] = column("The new status.")
    reason: Mapped[str] = column("Reason: the user's words, the question, the result, or the failure.")
    changed: Mapped[dict[str, Any] | None] = json("New objective, requirements, constraints; null: the same.")
