"""What the model was asked, what it wrote, and what was thought of it."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import REAL
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, json, key, reference


class ModelRead(Base):
    __tablename__ = "prompts"
    __table_args__ = {
        "comment": "What the model read in a step: blocks 0 and 1, those from first_block to the one to write, "
        "and what no block holds."
    }

    step_id: Mapped[int] = reference("steps.id", "The step.", primary_key=True)
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    server: Mapped[str] = column("Base URL of the server that answered.")
    first_block: Mapped[int] = column("Index of the oldest block in it besides 0 and 1.")
    tokens: Mapped[int | None] = column("Prompt tokens up to the body, as the server counts; null: it can't say.")
    cached: Mapped[int | None] = column("Of these, how many its prefix cache held; null: it does not say.")
    cut: Mapped[dict[str, Any] | None] = json(
        "What was left out as the model's length had no room; null: nothing."
    )
    length: Mapped[int | None] = column(
        "Of a conversation: tokens that it may take in all, by setting or as the server says."
    )
    token_ids: Mapped[list[int] | None] = column(
        "Ids of what no block holds: what was retrieved and asked, header, the body's fixed beginning; "
        "by setting.",
        type_=Numbers(sa.Integer),
    )


class Candidate(Base):
    __tablename__ = "candidates"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Every text the model was sampled for, losers included."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that sampled it.")
    position: Mapped[int] = column("Among the candidates of its round, from 0.")
    block_index: Mapped[int] = column("Index of the block it was sampled for.")
    type: Mapped[str] = column("Type of that block; bm25-query: a query for its header; next-type: a name for it.")
    round: Mapped[int] = column("Of the cascade, from 0; those of a tree search count from 1.")
    depth: Mapped[int | None] = column("Of a tree's node, from 1; null: a whole candidate.")
    parent_id: Mapped[int | None] = reference("candidates.id", "The node that it goes on from.", index=True)
    text: Mapped[str] = column("The body from its beginning: fixed prefix or parent's text, and what was sampled.")
    finish_reason: Mapped[str] = column("stop or length, as the server says.")
    tokens: Mapped[int] = column("Sampled tokens.")
    token_ids: Mapped[list[int] | None] = column(
        "Ids of the sampled tokens, by setting.", type_=Numbers(sa.Integer)
    )
    logprobs: Mapped[list[float] | None] = column(
        "Log-probabilities of the sampled tokens, by setting.", type_=Numbers(REAL)
    )


class Penalties(Base):
    __tablename__ = "penalties"
    __table_args__ = {
        "comment": "What linting found in a candidate. Subtracted from its score for selection only."
    }

    candidate_id: Mapped[int] = reference("candidates.id", "The candidate.", primary_key=True)
    compiles: Mapped[bool] = column("Whether it is legal Python.")
    viable: Mapped[bool | None] = column(
        "Of a half-written node: whether it may still become legal; only where not, the search counted a penalty."
    )
    error: Mapped[str | None] = column("The syntax error, where it is not.")
    rewritten: Mapped[str | None] = column("Its legal structure, where that differs from its text.")
    syntax: Mapped[float] = column("Does not compile.")
    extra_elements: Mapped[float] = column("More top-level elements than the shape has.")
    not_a_string: Mapped[float] = column("A prose block that does not begin with a string.")
    code_in_prose: Mapped[float] = column("Code-like text inside a prose block.")
    shape: Mapped[float] = column("A callback block that is not exactly a function and its registration.")
    wrong_name: Mapped[float] = column("Registers another name than the function's.")
    title: Mapped[float] = column("An evaluation whose title is no question, or can't be read.")
    assertions: Mapped[float] = column("Assertions missing, without a question, inside a try, or too many.")
    forbidden_calls: Mapped[float] = column("Calls that do not belong into an action.")
    length_after_debug: Mapped[float] = column("Length beyond 96 tokens straight after a debug block.")


class Score(Base):
    __tablename__ = "scores"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position", "question"),
        {"comment": "Yes/no questions put to the model: a row per text and question, never overwritten."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that asked.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate asked about.", index=True)
    position: Mapped[int] = column("Of the text within the step, from 0.")
    stage: Mapped[str] = column("selection: as sampled; raw: as rewritten; option: asked of the model itself.")
    rubric: Mapped[str] = column("Version of the rubric and its calibration examples.")
    question: Mapped[str] = column("The question.")
    yes: Mapped[float] = column("Probability mass of yes.")
    no: Mapped[float] = column("Probability mass of no.")
    score: Mapped[float | None] = column("Log odds; null where the model gave neither side any mass.")
