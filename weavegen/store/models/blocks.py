"""What traces consist of, and what was found out about it."""

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
    timestamp: Mapped[float] = column("When its writing began, seconds since the epoch.")
    time_remaining: Mapped[float] = column("Seconds left of the time budget then.")
    block_size: Mapped[int | None] = column("Tokens the model was given; null where it did not write the block.")
    bm25_query: Mapped[str | None] = column("The query that the model wrote before it.")
    title: Mapped[str | None] = column("Of an observation.")
    tick_start: Mapped[int | None] = column("Of an orientation: index of the tick's first block.")
    working_directory: Mapped[str | None] = column("Of an orientation.")
    compiles: Mapped[bool] = column("Whether its body is legal Python (always true of text).")
    question: Mapped[str | None] = column("What the evaluator was asked about it.")
    answer: Mapped[bool | None] = column("The answer, drawn once with the model's own probability.")
    probability: Mapped[float | None] = column("Of the drawn answer.")
    ran: Mapped[bool | None] = column(
        "Whether it ran without errors; null: it was not executed. Of a return: whether its caller went on so."
    )
    exception: Mapped[str | None] = column("Class of the exception that ended it.")
    tags: Mapped[list[str]] = column("Tags.", type_=ARRAY(sa.Text))
    score: Mapped[float | None] = column("Raw score: log odds after rewriting, without penalties.")
    reward: Mapped[float | None] = column("Its part of the tick's reward.")
    preference: Mapped[float | None] = column("What its score is corrected by in preference data; null: nothing.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate it was made of.", index=True)
    executed_by: Mapped[int | None] = reference("steps.id", "The step that executed it.", index=True)
    created_at: Mapped[datetime.datetime] = now("When it was recorded.")


class BlockTokens(Base):
    __tablename__ = "block_tokens"
    __table_args__ = (
        sa.ForeignKeyConstraint(["trace_id", "index"], ["blocks.trace_id", "blocks.index"], ondelete="CASCADE"),
        {"comment": "The tokens of blocks as the model read them, by setting."},
    )

    trace_id: Mapped[int] = column("Its trace.", primary_key=True)
    index: Mapped[int] = column("Its index. The first one begins with the template's opening.", primary_key=True)
    token_ids: Mapped[list[int]] = column("Ids.", type_=Numbers(sa.Integer))


class Evaluation(Base):
    __tablename__ = "evaluations"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Results of evaluation callbacks, the task's and the tick's."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    tick: Mapped[int] = column("Number of its tick.")
    position: Mapped[int] = column("Among the evaluations of the tick, from 0.")
    scope: Mapped[str] = column("task: bound by the bootstrap; tick: written by the agent.")
    title: Mapped[str] = column("Its title, a question.")
    value: Mapped[Any | None] = json(
        "What it returned: a JSON value, or the repr of what is none. Null on an error."
    )
    error: Mapped[str | None] = column("The exception, where it raised one.")


class GroundedLabel(Base):
    __tablename__ = "grounded_labels"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Questions that assertions asked, and how they really came out. See blocks.executed_by."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran the assertion.")
    position: Mapped[int] = column("Among the assertions of the step that were reached, from 0.")
    question: Mapped[str] = column("The assertion's message.")
    answer: Mapped[bool] = column("Whether it held.")
