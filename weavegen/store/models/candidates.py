"""Prompts, candidates, penalties and scores."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import REAL
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, json, key, reference


class ModelRead(Base):
    __tablename__ = "prompts"
    __table_args__ = {
        "comment": "What the model read in a step: blocks 0 and 1, the blocks from first_block on, and text "
        "that is in no block."
    }

    step_id: Mapped[int] = reference("steps.id", "The step.", primary_key=True)
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    server: Mapped[str] = column("Base URL of the server that answered.")
    first_block: Mapped[int] = column("Index of the oldest block in the prompt besides 0 and 1.")
    tokens: Mapped[int | None] = column("Prompt tokens before the body, as the server counts; null: not reported.")
    cached: Mapped[int | None] = column("Prompt tokens that came from the prefix cache; null: not reported.")
    cut: Mapped[dict[str, Any] | None] = json("What was left out for the model's length; null: nothing.")
    length: Mapped[int | None] = column("In a conversation: its highest number of tokens in all.")
    token_ids: Mapped[list[int] | None] = column(
        "Token ids of the text in no block: retrieved texts, instruction, header, fixed beginning of the body. "
        "Kept only if a setting says so.",
        type_=Numbers(sa.Integer),
    )


class Candidate(Base):
    __tablename__ = "candidates"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position"),
        {"comment": "Every text that was sampled, rejected ones included."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that sampled it.")
    position: Mapped[int] = column("Position among the candidates of its round, from 0.")
    block_index: Mapped[int] = column("Index of the block that it was sampled for.")
    type: Mapped[str] = column("Type of that block; bm25-query: a query; next-type: the name of a type.")
    round: Mapped[int] = column("Number of the round: from 0 in a cascade, from 1 in a tree search.")
    depth: Mapped[int | None] = column("Depth of a node in a tree search, from 1; null: a whole candidate.")
    parent_id: Mapped[int | None] = reference("candidates.id", "The node that it continues.", index=True)
    text: Mapped[str] = column("The body: fixed prefix or parent's text, then the sampled text.")
    finish_reason: Mapped[str] = column("stop or length, as the server reports.")
    tokens: Mapped[int] = column("Sampled tokens.")
    token_ids: Mapped[list[int] | None] = column("Sampled token ids, if kept.", type_=Numbers(sa.Integer))
    logprobs: Mapped[list[float] | None] = column("Their log-probabilities, if kept.", type_=Numbers(REAL))


class Penalties(Base):
    __tablename__ = "penalties"
    __table_args__ = {"comment": "Verdicts on candidates. Penalties count in selection only."}

    candidate_id: Mapped[int] = reference("candidates.id", "The candidate.", primary_key=True)
    compiles: Mapped[bool] = column("Whether it is legal Python.")
    viable: Mapped[bool | None] = column("Whether a node of a tree search may still become legal.")
    error: Mapped[str | None] = column("The syntax error, if it is not legal.")
    rewritten: Mapped[str | None] = column("Its legal structure, if that differs from its text.")
    syntax: Mapped[float] = column("Does not compile.")
    extra_elements: Mapped[float] = column("More top-level elements than the shape has.")
    not_a_string: Mapped[float] = column("A prose block that does not begin with a string.")
    code_in_prose: Mapped[float] = column("Code-like text inside a prose block.")
    shape: Mapped[float] = column("A callback block that is not exactly a function and its registration.")
    wrong_name: Mapped[float] = column("Registers another name than the function's.")
    title: Mapped[float] = column("An evaluation whose title is no question, or can't be read.")
    assertions: Mapped[float] = column("Assertions missing, without a question, inside a try, or too many.")
    forbidden_calls: Mapped[float] = column("Calls that an action may not make.")
    length_after_debug: Mapped[float] = column("Length beyond 96 tokens right after a debug block.")


class Score(Base):
    __tablename__ = "scores"
    __table_args__ = (
        sa.UniqueConstraint("step_id", "position", "question"),
        {"comment": "Yes/no questions to the model: a row for each text and question, never overwritten."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that asked.")
    candidate_id: Mapped[int | None] = reference("candidates.id", "The candidate asked about.", index=True)
    position: Mapped[int] = column("Position of the text in the step, from 0.")
    stage: Mapped[str] = column("selection: of texts as sampled; raw: as rewritten; option: of the model itself.")
    rubric: Mapped[str] = column("Version of the rubric and its calibration examples.")
    question: Mapped[str] = column("The question.")
    yes: Mapped[float] = column("Probability mass of yes.")
    no: Mapped[float] = column("Probability mass of no.")
    score: Mapped[float | None] = column("Log odds of yes; null: neither answer had any mass.")
