"""The library of tools that agents make and use again."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from weavegen.store.models.base import Base, column, key, now, reference


class Tool(Base):
    __tablename__ = "tools"
    __table_args__ = {"comment": "Functions that agents have made, to be used again; found by BM25."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name of the function.", unique=True)
    description: Mapped[str] = column("What it does, by its newest version.")
    signature: Mapped[str] = column("Its newest version's first line: `def name(...) -> ...`.")
    created_at: Mapped[datetime.datetime] = now("When it was first made.")


class ToolVersion(Base):
    __tablename__ = "tool_versions"
    __table_args__ = (
        sa.UniqueConstraint("tool_id", "version"),
        {"comment": "The versions of tools. Rows are never changed; the newest is the one that is used."},
    )

    id: Mapped[int] = key()
    tool_id: Mapped[int] = reference("tools.id", "Its tool.")
    version: Mapped[int] = column("Among the tool's, from 1.")
    source: Mapped[str] = column("Python source that defines the function.")
    tests: Mapped[str] = column("Source of test(function), which it has passed; empty: it has none.")
    evaluator: Mapped[str] = column("Source of evaluate(function), which has scored it; empty: nothing has.")
    score: Mapped[float | None] = column("What the evaluator gave it, more is better; null: it was not scored.")
    generality: Mapped[float | None] = column(
        "How well it serves other requests, too, as the model judged its signature: log odds; null: not asked."
    )
    made_by: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("traces.id", ondelete="SET NULL"),
        index=True,
        comment="The toolsmith's trace that had it made.",
    )
    searched_by: Mapped[int | None] = mapped_column(
        sa.BigInteger,
        sa.ForeignKey("traces.id", ondelete="SET NULL"),
        index=True,
        comment="The trace in which its programs were searched (programs.trace_id).",
    )
    program: Mapped[int | None] = column("Number of the program there that it is.")
    created_at: Mapped[datetime.datetime] = now("When it was made.")


class ToolUse(Base):
    __tablename__ = "tool_uses"
    __table_args__ = {"comment": "Each call of a tool of the library, and whether it worked."}

    id: Mapped[int] = key()
    tool_version_id: Mapped[int] = reference("tool_versions.id", "The version called.", index=True)
    trace_id: Mapped[int] = reference("traces.id", "The trace that called it.", index=True)
    success: Mapped[bool] = column("Whether it came back with a value.")
    at: Mapped[datetime.datetime] = now("When.")
