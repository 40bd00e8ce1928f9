"""Rescoring: questions put to the model about what was recorded, their answers, and corrections of questions."""

import datetime
import enum

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now, one_of, reference


class CampaignState(enum.StrEnum):
    """active ⇄ stopped: what people want of a campaign. It is over when all its batches are done."""

    ACTIVE = "active"
    STOPPED = "stopped"
    """No batch of it is sent or taken."""


class BatchStatus(enum.StrEnum):
    """waiting → sent → running → done; sent and running → waiting when nobody took it, or its lease ran out."""

    WAITING = "waiting"
    SENT = "sent"
    RUNNING = "running"
    DONE = "done"


class Campaign(Base):
    __tablename__ = "campaigns"
    __table_args__ = (
        one_of("state", "state", CampaignState),
        sa.CheckConstraint("over in ('blocks', 'candidates')", name="over"),
        {"comment": "What `weavegen rescore` was asked for: a rubric, put to the model about recorded texts."},
    )

    id: Mapped[int] = key()
    name: Mapped[str] = column("What the user called it.", unique=True)
    over: Mapped[str] = column("What is asked about: blocks or candidates.")
    condition: Mapped[str] = column("The SQL condition that chose them.")
    rubric: Mapped[str] = column("The rubric's text, TOML.")
    rubric_version: Mapped[str] = column("Hash of that and of weavegen's own calibration examples, hexadecimal.")
    model: Mapped[str | None] = column("Model asked for; null: that of each trace's job.")
    version: Mapped[str] = column("Version of weavegen that made it.")
    state: Mapped[str] = column("active or stopped.", server_default="active")
    created_at: Mapped[datetime.datetime] = now("When it was made.")


class CampaignBatch(Base):
    __tablename__ = "campaign_batches"
    __table_args__ = (
        one_of("status", "status", BatchStatus),
        sa.UniqueConstraint("campaign_id", "trace_id", "number"),
        sa.Index("ix_campaign_batches_waiting", "id", postgresql_where=sa.text("status = 'waiting'")),
        sa.Index("ix_campaign_batches_open", "id", postgresql_where=sa.text("status in ('sent', 'running')")),
        {"comment": "Parts of campaigns that a worker does at a time: texts of one trace, with one prefix."},
    )

    id: Mapped[int] = key()
    campaign_id: Mapped[int] = reference("campaigns.id", "Its campaign.")
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    number: Mapped[int] = column("Among the campaign's batches of the trace, from 0.")
    status: Mapped[str] = column("waiting, sent, running or done.", server_default="waiting")
    claims: Mapped[int] = column(
        "How often a worker took it; the fence against workers that lost it.", server_default="0"
    )
    worker: Mapped[str | None] = column("Who took it last.")
    lease_until: Mapped[datetime.datetime | None] = column("After this it is given to another worker.")
    send_after: Mapped[datetime.datetime] = now("It is sent, or sent again, after this, if nobody took it.")
    claimed_at: Mapped[datetime.datetime | None] = column("When it was taken last.")
    finished_at: Mapped[datetime.datetime | None] = column("When its answers were stored.")
    failure: Mapped[str | None] = column("The last transient error.")
    model_seconds: Mapped[float | None] = column("Time spent waiting for the model server.")


class CampaignItem(Base):
    __tablename__ = "campaign_items"
    __table_args__ = {"comment": "The texts that a campaign asks about."}

    id: Mapped[int] = key()
    batch_id: Mapped[int] = reference("campaign_batches.id", "Its batch.", index=True)
    candidate_id: Mapped[int] = reference(
        "candidates.id", "The candidate asked about; of a block the one that it was made of.", index=True
    )
    block_id: Mapped[int | None] = reference(
        "blocks.id", "The block asked about; null: the candidate.", index=True
    )
    context_tokens: Mapped[int | None] = column("Tokens that the model read before the text; null: not asked yet.")
    failure: Mapped[str | None] = column("Why the model could not be asked; null: it could, or was not yet.")


class Answer(Base):
    __tablename__ = "answers"
    __table_args__ = (
        sa.UniqueConstraint("item_id", "question"),
        {"comment": "What the model answered in campaigns: a row per text and question, never overwritten."},
    )

    id: Mapped[int] = key()
    item_id: Mapped[int] = reference("campaign_items.id", "The text asked about.")
    question: Mapped[str] = column("The question.")
    truth: Mapped[str | None] = column(
        "What tells the right answer: ran, evaluation or assertion; null: nothing that is recorded."
    )
    yes: Mapped[float] = column("Probability mass of yes.")
    no: Mapped[float] = column("Probability mass of no.")
    score: Mapped[float | None] = column("Log odds; null where the model gave neither side any mass.")
    model: Mapped[str] = column("The model that answered.")
    server: Mapped[str] = column("Base URL of the server that answered.")
    created_at: Mapped[datetime.datetime] = now("When it was stored.")


class Correction(Base):
    __tablename__ = "corrections"
    __table_args__ = {"comment": "Corrections of the evaluator, fitted by `weavegen calibrate --fit`."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("What the user called it.", unique=True)
    campaign: Mapped[str | None] = column("Campaign of the answers that it was fitted to; null: ticks' scores.")
    condition: Mapped[str | None] = column("The SQL condition over calibration_pairs; null: none.")
    version: Mapped[str] = column("Version of weavegen that fitted it.")
    created_at: Mapped[datetime.datetime] = now("When it was fitted.")


class CorrectedQuestion(Base):
    __tablename__ = "corrected_questions"
    __table_args__ = {"comment": "Of a correction, question by question: log odds times slope, plus intercept."}

    correction_id: Mapped[int] = reference("corrections.id", "Its correction.", primary_key=True)
    question: Mapped[str] = column("The question.", primary_key=True)
    slope: Mapped[float] = column("What log odds are multiplied by.")
    intercept: Mapped[float] = column("What is added to that.")
    labels: Mapped[int] = column("Labels that it was fitted to.")
    positives: Mapped[int] = column("Of these, the ones that are true.")
    brier_before: Mapped[float] = column("Mean squared error of the probabilities as the model gave them.")
    brier_after: Mapped[float] = column(
        "That of corrected ones, each by a fit to other labels (cross-validation)."
    )
