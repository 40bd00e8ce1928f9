"""Programs that searches evaluated, and the library of tools that agents make and reuse."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, key, now, reference


class Tool(Base):
    __tablename__ = "tools"
    __table_args__ = {"comment": "Functions that agents made for reuse. They are found by BM25."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name of the function.", unique=True)
    description: Mapped[str] = column("What its newest version does.")
    signature: Mapped[str] = column("First line of its newest version: `def name(...) -> ...`.")
    created_at: Mapped[datetime.datetime] = now("When it was first made.")


class ToolVersion(Base):
    __tablename__ = "tool_versions"
    __table_args__ = (
        sa.UniqueConstraint("tool_id", "version"),
        {"comment": "The versions of tools. Rows are never changed. The newest version is used."},
    )

    id: Mapped[int] = key()
    tool_id: Mapped[int] = reference("tools.id", "Its tool.")
    version: Mapped[int] = column("Number of the version, from 1.")
    source: Mapped[str] = column("Python source that defines the function.")
    tests: Mapped[str] = column("Source of test(function), which it passed; empty: none.")
    evaluator: Mapped[str] = column("Source of evaluate(function), which scored it; empty: none.")
    score: Mapped[float | None] = column("Score by the evaluator, higher is better; null: not scored.")
    generality: Mapped[float | None] = column("How well it serves other requests: log odds; null: not judged.")
    made_by: Mapped[int | None] = reference(
        "traces.id", "The trace that made it.", ondelete="SET NULL", index=True
    )
    searched_by: Mapped[int | None] = reference(
        "traces.id", "The trace of the search that found it (programs.trace_id).", ondelete="SET NULL", index=True
    )
    program: Mapped[int | None] = column("Number of the program in that search.")
    created_at: Mapped[datetime.datetime] = now("When it was made.")


class ToolUse(Base):
    __tablename__ = "tool_uses"
    __table_args__ = {"comment": "Calls of tools of the library."}

    id: Mapped[int] = key()
    tool_version_id: Mapped[int] = reference("tool_versions.id", "The version called.", index=True)
    trace_id: Mapped[int] = reference("traces.id", "The trace that called it.", index=True)
    success: Mapped[bool] = column("Whether the call returned a value.")
    at: Mapped[datetime.datetime] = now("When it was called.")


class TriedProgram(Base):
    __tablename__ = "programs"
    __table_args__ = (
        sa.UniqueConstraint("trace_id", "number"),
        {"comment": "Every program that a search evaluated, failed ones included."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "The search.")
    number: Mapped[int] = column("Number among the programs of the search, from 0, without gaps.")
    tick: Mapped[int] = column("Number of the tick in which it was evaluated.")
    generation: Mapped[int] = column("Generation, from 1; 0: the program that the search began with.")
    island: Mapped[int | None] = column("Island that it was written for, from 0; null: the first program.")
    parents: Mapped[list[int]] = column("Numbers of the programs in the prompt.", type_=Numbers(sa.BigInteger))
    source: Mapped[str] = column("Its text; empty: the model's message held no program.")
    score: Mapped[float | None] = column("Score, higher is better; null: none, see error.")
    signature: Mapped[list[float]] = column("Its score on each instance.", type_=Numbers(sa.Double))
    error: Mapped[str | None] = column("Why it has no score; null: it has one.")
    candidate_id: Mapped[int | None] = reference(
        "candidates.id", "The message that held it; null: the program that the search began with.", index=True
    )
    tried_at: Mapped[datetime.datetime] = now("When it was recorded.")
