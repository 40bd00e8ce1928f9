"""Campaigns: questions to the model about recorded texts, their answers, and corrections of questions."""

import datetime
import enum

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now, one_of, reference


class CampaignState(enum.StrEnum):
    """active ⇄ stopped, as people set it. A campaign is over when all its batches are done."""

    ACTIVE = "active"
    STOPPED = "stopped"
    """None of its batches is sent or claimed."""


class BatchStatus(enum.StrEnum):
    """waiting → sent → running → done; sent and running → waiting when nobody claims it, or its lease expires."""

    WAITING = "waiting"
    SENT = "sent"
    RUNNING = "running"
    DONE = "done"


class Campaign(Base):
    __tablename__ = "campaigns"
    __table_args__ = (
        one_of("state", "state", CampaignState),
        sa.CheckConstraint("over in ('blocks', 'candidates')", name="over"),
        {"comment": "Campaigns of `weavegen rescore`: the questions of a rubric about recorded texts."},
    )

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name that the user gave it.", unique=True)
    over: Mapped[str] = column("What the campaign asks about: blocks or candidates.")
    condition: Mapped[str] = column("The SQL condition that chose the texts.")
    rubric: Mapped[str] = column("The rubric's text, TOML.")
    rubric_version: Mapped[str] = column("Hash of the rubric and of weavegen's calibration examples.")
    model: Mapped[str | None] = column("Model that the user named; null: the model of each trace's job.")
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
        {"comment": "Batches of campaigns: texts of one trace that one worker asks about at a time."},
    )

    id: Mapped[int] = key()
    campaign_id: Mapped[int] = reference("campaigns.id", "Its campaign.")
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    number: Mapped[int] = column("Number among the campaign's batches of the trace, from 0.")
    status: Mapped[str] = column("waiting, sent, running or done.", server_default="waiting")
    claims: Mapped[int] = column("How often workers claimed it. Fences off old holders.", server_default="0")
    worker: Mapped[str | None] = column("The worker that claimed it last, as host:pid.")
    lease_until: Mapped[datetime.datetime | None] = column("When another worker may claim it.")
    send_after: Mapped[datetime.datetime] = now("When it is sent, or sent again unless a worker claimed it.")
    claimed_at: Mapped[datetime.datetime | None] = column("When it was last claimed.")
    finished_at: Mapped[datetime.datetime | None] = column("When its answers were stored.")
    failure: Mapped[str | None] = column("The last transient error; null: none.")
    model_seconds: Mapped[float | None] = column("Time spent waiting for the model server.")


class CampaignItem(Base):
    __tablename__ = "campaign_items"
    __table_args__ = {"comment": "The texts that a campaign asks about."}

    id: Mapped[int] = key()
    batch_id: Mapped[int] = reference("campaign_batches.id", "Its batch.", index=True)
    candidate_id: Mapped[int] = reference(
        "candidates.id", "The candidate asked about, or the one that the block was made of.", index=True
    )
    block_id: Mapped[int | None] = reference("blocks.id", "The block asked about; null: a candidate.", index=True)
    context_tokens: Mapped[int | None] = column("Tokens that the model read before the text; null: not known yet.")
    failure: Mapped[str | None] = column("Why the model could not be asked; null: no failure.")


class Answer(Base):
    __tablename__ = "answers"
    __table_args__ = (
        sa.UniqueConstraint("item_id", "question"),
        {"comment": "Answers of the model in campaigns: a row for each text and question, never overwritten."},
    )

    id: Mapped[int] = key()
    item_id: Mapped[int] = reference("campaign_items.id", "The text asked about.")
    question: Mapped[str] = column("The question.")
    truth: Mapped[str | None] = column("Source of the true answer: ran, evaluation, assertion; null: none.")
    yes: Mapped[float] = column("Probability mass of yes.")
    no: Mapped[float] = column("Probability mass of no.")
    score: Mapped[float | None] = column("Log odds of yes; null: neither answer had any mass.")
    model: Mapped[str] = column("The model that answered.")
    server: Mapped[str] = column("Base URL of the server that answered.")
    created_at: Mapped[datetime.datetime] = now("When it was stored.")


class Correction(Base):
    __tablename__ = "corrections"
    __table_args__ = {"comment": "Corrections of the evaluator, fitted by `weavegen calibrate --fit`."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name that the user gave it.", unique=True)
    campaign: Mapped[str | None] = column("Campaign whose answers it was fitted to; null: scores of ticks.")
    condition: Mapped[str | None] = column("The SQL condition on calibration_pairs; null: none.")
    version: Mapped[str] = column("Version of weavegen that fitted it.")
    created_at: Mapped[datetime.datetime] = now("When it was fitted.")


class CorrectedQuestion(Base):
    __tablename__ = "corrected_questions"
    __table_args__ = {"comment": "Questions of corrections. Corrected: log odds times slope plus intercept."}

    correction_id: Mapped[int] = reference("corrections.id", "Its correction.", primary_key=True)
    question: Mapped[str] = column("The question.", primary_key=True)
    slope: Mapped[float] = column("Factor of the log odds.")
    intercept: Mapped[float] = column("Summand after the multiplication.")
    labels: Mapped[int] = column("Labels that it was fitted to.")
    positives: Mapped[int] = column("Labels among these that are true.")
    brier_before: Mapped[float] = column("Mean squared error of the model's probabilities.")
    brier_after: Mapped[float] = column("Mean squared error of corrected probabilities, by cross-validation.")
