"""Campaigns: questions to the model about recorded texts, their answers, and corrections of questions."""

from datetime import datetime

import sqlalchemy as sa

from weavegen.store.models.columns import column, now, reference, table
from weavegen.store.states import BatchStatus, CampaignState

CAMPAIGNS = table(
    "campaigns",
    "Campaigns of `weavegen rescore`: the questions of a rubric about recorded texts.",
    column("name", str, "Name that the user gave it.", unique=True),
    column("over", str, "What the campaign asks about: blocks or candidates."),
    column("condition", str, "The SQL condition that chose the texts."),
    column("rubric", str, "The rubric's text, TOML."),
    column("rubric_version", str, "Hash of the rubric and of weavegen's calibration examples."),
    column("model", str | None, "Model that the user named; null: the model of each trace's job."),
    column("version", str, "Version of weavegen that made it."),
    column("state", CampaignState, "active or stopped.", server_default="active"),
    now("created_at", "When it was made."),
    sa.CheckConstraint("over in ('blocks', 'candidates')", name="over"),
)

BATCHES = table(
    "campaign_batches",
    "Batches of campaigns: texts of one trace that one worker asks about at a time.",
    reference("campaign_id", "Its campaign."),
    reference("trace_id", "Its trace.", index=True),
    column("number", int, "Number among the campaign's batches of the trace, from 0."),
    column("status", BatchStatus, "waiting, sent, running or done.", server_default="waiting"),
    column("claims", int, "How often workers claimed it. Fences off old holders.", server_default="0"),
    column("worker", str | None, "The worker that claimed it last, as host:pid."),
    column("lease_until", datetime | None, "When another worker may claim it."),
    now("send_after", "When it is sent, or sent again unless a worker claimed it."),
    column("claimed_at", datetime | None, "When it was last claimed."),
    column("finished_at", datetime | None, "When its answers were stored."),
    column("failure", str | None, "The last transient error; null: none."),
    column("model_seconds", float | None, "Time spent waiting for the model server."),
    sa.UniqueConstraint("campaign_id", "trace_id", "number"),
    sa.Index("ix_campaign_batches_waiting", "id", postgresql_where=sa.text("status = 'waiting'")),
    sa.Index("ix_campaign_batches_open", "id", postgresql_where=sa.text("status in ('sent', 'running')")),
)

ITEMS = table(
    "campaign_items",
    "The texts that a campaign asks about.",
    reference("batch_id", "Its batch.", to="campaign_batches", index=True),
    reference("candidate_id", "The candidate asked about, or the one that the block was made of.", index=True),
    reference("block_id", "The block asked about; null: a candidate.", index=True, nullable=True),
    column("context_tokens", int | None, "Tokens that the model read before the text; null: not known yet."),
    column("failure", str | None, "Why the model could not be asked; null: no failure."),
)

ANSWERS = table(
    "answers",
    "Answers of the model in campaigns: a row for each text and question, never overwritten.",
    reference("item_id", "The text asked about.", to="campaign_items"),
    column("question", str, "The question."),
    column("truth", str | None, "Source of the true answer: ran, evaluation, assertion; null: none."),
    column("yes", float, "Probability mass of yes."),
    column("no", float, "Probability mass of no."),
    column("score", float | None, "Log odds of yes; null: neither answer had any mass."),
    column("model", str, "The model that answered."),
    column("server", str, "Base URL of the server that answered."),
    now("created_at", "When it was stored."),
    sa.UniqueConstraint("item_id", "question"),
)

CORRECTIONS = table(
    "corrections",
    "Corrections of the evaluator, fitted by `weavegen calibrate --fit`.",
    column("name", str, "Name that the user gave it.", unique=True),
    column("campaign", str | None, "Campaign whose answers it was fitted to; null: scores of ticks."),
    column("condition", str | None, "The SQL condition on calibration_pairs; null: none."),
    column("version", str, "Version of weavegen that fitted it."),
    now("created_at", "When it was fitted."),
)

CORRECTED = table(
    "corrected_questions",
    "Questions of corrections. Corrected: log odds times slope plus intercept.",
    reference("correction_id", "Its correction.", primary_key=True),
    column("question", str, "The question.", primary_key=True),
    column("slope", float, "Factor of the log odds."),
    column("intercept", float, "Summand after the multiplication."),
    column("labels", int, "Labels that it was fitted to."),
    column("positives", int, "Labels among these that are true."),
    column("brier_before", float, "Mean squared error of the model's probabilities."),
    column("brier_after", float, "Mean squared error of corrected probabilities, by cross-validation."),
)
