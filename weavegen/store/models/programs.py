"""Programs that searches for programs have tried (agents/funsearch.py)."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, key, now, reference


class TriedProgram(Base):
    __tablename__ = "programs"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "number"),
        {"comment": "Every program that a search has tried, the failed ones too, with those it was made from."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "The search.")
    number: Mapped[int] = column("Among all that the search has tried, from 0, without gaps.")
    tick: Mapped[int] = column("Number of the tick in which it was tried.")
    generation: Mapped[int] = column("From 1; 0: what the search began with.")
    island: Mapped[int | None] = column(
        "Island that it was written for, from 0; null: what the search began with."
    )
    parents: Mapped[list[int]] = column(
        "Numbers of the programs that the model was shown.", type_=Numbers(sa.BigInteger)
    )
    source: Mapped[str] = column("Its text; empty where the model's message holds no program.")
    score: Mapped[float | None] = column("Higher is better; null: it has none, see error.")
    signature: Mapped[list[float]] = column(
        "Its score on each instance; empty where it has none.", type_=Numbers(sa.Double)
    )
    error: Mapped[str | None] = column("Why it has no score; null: it has one.")
    candidate_id: Mapped[int | None] = reference(
        "candidates.id", "The message that it was taken from; null: what the search began with.", index=True
    )
    tried_at: Mapped[datetime.datetime] = now("When it was recorded.")
