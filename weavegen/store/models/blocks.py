"""Blocks, and the results of their execution."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, json, key, now, one_of, reference
from weavegen.trace.blocks import BlockType


class Block(Base):
    __tablename__ = "blocks"
    __table_args__ = (
        one_of("type", "type", BlockType),
        sa.UniqueConstraint("trace_id", "index"),
        sa.Index("ix_blocks_type_score", "type", "score", postgresql_where=sa.text("score is not null")),
        {"comment": "The blocks of the traces, as recorded."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.")
    index: Mapped[int] = column("Position in the trace, from 0, without gaps.")
    tick: Mapped[int] = column("Number of its tick.")
    subagent: Mapped[str] = column("Name of the subagent that wrote it.")
    type: Mapped[str] = column("Its type: orientation, action, ...")
    body: Mapped[str] = column("The text between header and footer, not commented out.")
    rendered: Mapped[str] = column("The block as it stands in the trace.")
    timestamp: Mapped[float] = column("When the writing of it began, in seconds since the epoch.")
    time_remaining: Mapped[float] = column("Seconds left of the time budget at that time.")
    block_size: Mapped[int | None] = column("Tokens that the model was allowed; null: the model did not write it.")
    bm25_query: Mapped[str | None] = column("The query that the model wrote before the block.")
    title: Mapped[str | None] = column("Title of an observation.")
    tick_start: Mapped[int | None] = column("In an orientation: index of the tick's first block.")
    working_directory: Mapped[str | None] = column("In an orientation: the working directory.")
    compiles: Mapped[bool] = column("Whether its body is legal Python. Always true of prose.")
    question: Mapped[str | None] = column("What the evaluator was asked about it.")
    answer: Mapped[bool | None] = column("The answer, drawn once with the model's own probability.")
    probability: Mapped[float | None] = column("Probability of the drawn answer.")
    ran: Mapped[bool | None] = column(
        "Whether it ran without errors; null: it was not executed. In a return: whether the caller accepted it."
    )
    exception: Mapped[str | None] = column("Class of the exception that ended the block's code.")
    tags: Mapped[list[str]] = column("Tags.", type_=ARRAY(sa.Text))
    score: Mapped[float | None] = column("Raw score: log odds after rewriting, without penalties.")
    reward: Mapped[float | None] = column("Its share of the tick's reward.")
    preference: Mapped[float | None] = column("Correction that preference data add to its score; null: none.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate that it was made of.", index=True)
    executed_by: Mapped[int | None] = reference("steps.id", "The step that executed it.", index=True)
    created_at: Mapped[datetime.datetime] = now("When it was recorded.")


class BlockTokens(Base):
    __tablename__ = "block_tokens"
    __table_args__ = (
        sa.ForeignKeyConstraint(["trace_id", "index"], ["blocks.trace_id", "blocks.index"], ondelete="CASCADE"),
        {"comment": "Token ids of blocks as the model read them, if kept."},
    )

    trace_id: Mapped[int] = column("Its trace.", primary_key=True)
    index: Mapped[int] = column("Index of the block.", primary_key=True)
    token_ids: Mapped[list[int]] = column("Token ids.", type_=Numbers(sa.Integer))


class Evaluation(Base):
    __tablename__ = "evaluations"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Results of evaluation callbacks, of the task and of the tick."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    tick: Mapped[int] = column("Number of its tick.")
    position: Mapped[int] = column("Position among the evaluations of the tick, from 0.")
    scope: Mapped[str] = column("task: bound by the bootstrap; tick: written by the agent.")
    title: Mapped[str] = column("Its title, a question.")
    value: Mapped[Any | None] = json("What it returned, as JSON, or as its repr. Null on an error.")
    error: Mapped[str | None] = column("The exception that it raised; null: none.")


class GroundedLabel(Base):
    __tablename__ = "grounded_labels"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Questions of assertions, and whether the assertions held. See blocks.executed_by."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran the assertion.")
    position: Mapped[int] = column("Position among the assertions that the step reached, from 0.")
    question: Mapped[str] = column("The assertion's message.")
    answer: Mapped[bool] = column("Whether it held.")
