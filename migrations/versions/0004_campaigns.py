"""Rescoring: campaigns, their answers, and corrections of questions."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0004"
down_revision: str | Sequence[str] | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "campaigns",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("name", sa.Text(), nullable=False, comment="What the user called it."),
        sa.Column("over", sa.Text(), nullable=False, comment="What is asked about: blocks or candidates."),
        sa.Column("condition", sa.Text(), nullable=False, comment="The SQL condition that chose them."),
        sa.Column("rubric", sa.Text(), nullable=False, comment="The rubric's text, TOML."),
        sa.Column(
            "rubric_version",
            sa.Text(),
            nullable=False,
            comment="Hash of that and of weavegen's own calibration examples, hexadecimal.",
        ),
        sa.Column("model", sa.Text(), nullable=True, comment="Model asked for; null: that of each trace's job."),
        sa.Column("version", sa.Text(), nullable=False, comment="Version of weavegen that made it."),
        sa.Column("state", sa.Text(), server_default="active", nullable=False, comment="active or stopped."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.CheckConstraint("over in ('blocks', 'candidates')", name=op.f("ck_campaigns_over")),
        sa.CheckConstraint("state in ('active', 'stopped')", name=op.f("ck_campaigns_state")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("name", name=op.f("uq_campaigns_name")),
        comment="What `weavegen rescore` was asked for: a rubric, put to the model about recorded texts.",
    )
    op.create_table(
        "campaign_batches",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("campaign_id", sa.BigInteger(), nullable=False, comment="Its campaign."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column(
            "number", sa.BigInteger(), nullable=False, comment="Among the campaign's batches of the trace, from 0."
        ),
        sa.Column(
            "status", sa.Text(), server_default="waiting", nullable=False, comment="waiting, sent, running or done."
        ),
        sa.Column(
            "claims",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="How often a worker took it; the fence against workers that lost it.",
        ),
        sa.Column("worker", sa.Text(), nullable=True, comment="Who took it last."),
        sa.Column(
            "lease_until",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="After this it is given to another worker.",
        ),
        sa.Column(
            "send_after",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="It is sent, or sent again, after this, if nobody took it.",
        ),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=True, comment="When it was taken last."),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True, comment="When its answers were stored."),
        sa.Column("failure", sa.Text(), nullable=True, comment="The last transient error."),
        sa.Column("model_seconds", sa.Double(), nullable=True, comment="Time spent waiting for the model server."),
        sa.CheckConstraint("status in ('waiting', 'sent', 'running', 'done')", name=op.f("ck_campaign_batches_status")),
        sa.ForeignKeyConstraint(
            ["campaign_id"], ["campaigns.id"], name=op.f("fk_campaign_batches_campaign_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["trace_id"], ["traces.id"], name=op.f("fk_campaign_batches_trace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign_batches")),
        sa.UniqueConstraint(
            "campaign_id", "trace_id", "number", name=op.f("uq_campaign_batches_campaign_id_trace_id_number")
        ),
        comment="Parts of campaigns that a worker does at a time: texts of one trace, with one prefix.",
    )
    op.create_index(
        "ix_campaign_batches_open",
        "campaign_batches",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status in ('sent', 'running')"),
    )
    op.create_index(op.f("ix_campaign_batches_trace_id"), "campaign_batches", ["trace_id"], unique=False)
    op.create_index(
        "ix_campaign_batches_waiting",
        "campaign_batches",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'waiting'"),
    )
    op.create_table(
        "campaign_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("batch_id", sa.BigInteger(), nullable=False, comment="Its batch."),
        sa.Column(
            "candidate_id",
            sa.BigInteger(),
            nullable=False,
            comment="The candidate asked about; of a block the one that it was made of.",
        ),
        sa.Column("block_id", sa.BigInteger(), nullable=True, comment="The block asked about; null: the candidate."),
        sa.Column(
            "context_tokens",
            sa.BigInteger(),
            nullable=True,
            comment="Tokens that the model read before the text; null: not asked yet.",
        ),
        sa.Column(
            "failure",
            sa.Text(),
            nullable=True,
            comment="Why the model could not be asked; null: it could, or was not yet.",
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"], ["campaign_batches.id"], name=op.f("fk_campaign_items_batch_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_campaign_items_block_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_campaign_items_candidate_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign_items")),
        comment="The texts that a campaign asks about.",
    )
    op.create_index(op.f("ix_campaign_items_batch_id"), "campaign_items", ["batch_id"], unique=False)
    op.create_index(op.f("ix_campaign_items_block_id"), "campaign_items", ["block_id"], unique=False)
    op.create_index(op.f("ix_campaign_items_candidate_id"), "campaign_items", ["candidate_id"], unique=False)
    op.create_table(
        "answers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("item_id", sa.BigInteger(), nullable=False, comment="The text asked about."),
        sa.Column("question", sa.Text(), nullable=False, comment="The question."),
        sa.Column(
            "truth",
            sa.Text(),
            nullable=True,
            comment="What tells the right answer: ran, evaluation or assertion; null: nothing that is recorded.",
        ),
        sa.Column("yes", sa.Double(), nullable=False, comment="Probability mass of yes."),
        sa.Column("no", sa.Double(), nullable=False, comment="Probability mass of no."),
        sa.Column(
            "score", sa.Double(), nullable=True, comment="Log odds; null where the model gave neither side any mass."
        ),
        sa.Column("model", sa.Text(), nullable=False, comment="The model that answered."),
        sa.Column("server", sa.Text(), nullable=False, comment="Base URL of the server that answered."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was stored.",
        ),
        sa.ForeignKeyConstraint(
            ["item_id"], ["campaign_items.id"], name=op.f("fk_answers_item_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_answers")),
        sa.UniqueConstraint("item_id", "question", name=op.f("uq_answers_item_id_question")),
        comment="What the model answered in campaigns: a row per text and question, never overwritten.",
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("name", sa.Text(), nullable=False, comment="What the user called it."),
        sa.Column(
            "campaign",
            sa.Text(),
            nullable=True,
            comment="Campaign of the answers that it was fitted to; null: ticks' scores.",
        ),
        sa.Column(
            "condition", sa.Text(), nullable=True, comment="The SQL condition over calibration_pairs; null: none."
        ),
        sa.Column("version", sa.Text(), nullable=False, comment="Version of weavegen that fitted it."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was fitted.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corrections")),
        sa.UniqueConstraint("name", name=op.f("uq_corrections_name")),
        comment="Corrections of the evaluator, fitted by `weavegen calibrate --fit`.",
    )
    op.create_table(
        "corrected_questions",
        sa.Column("correction_id", sa.BigInteger(), nullable=False, comment="Its correction."),
        sa.Column("question", sa.Text(), nullable=False, comment="The question."),
        sa.Column("slope", sa.Double(), nullable=False, comment="What log odds are multiplied by."),
        sa.Column("intercept", sa.Double(), nullable=False, comment="What is added to that."),
        sa.Column("labels", sa.BigInteger(), nullable=False, comment="Labels that it was fitted to."),
        sa.Column("positives", sa.BigInteger(), nullable=False, comment="Of these, the ones that are true."),
        sa.Column(
            "brier_before",
            sa.Double(),
            nullable=False,
            comment="Mean squared error of the probabilities as the model gave them.",
        ),
        sa.Column(
            "brier_after",
            sa.Double(),
            nullable=False,
            comment="That of corrected ones, each by a fit to other labels (cross-validation).",
        ),
        sa.ForeignKeyConstraint(
            ["correction_id"], ["corrections.id"], name=op.f("fk_corrected_questions_correction_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("correction_id", "question", name=op.f("pk_corrected_questions")),
        comment="Of a correction, question by question: log odds times slope, plus intercept.",
    )


def downgrade() -> None:
    op.drop_table("corrected_questions")
    op.drop_table("corrections")
    op.drop_table("answers")
    op.drop_index(op.f("ix_campaign_items_candidate_id"), table_name="campaign_items")
    op.drop_index(op.f("ix_campaign_items_block_id"), table_name="campaign_items")
    op.drop_index(op.f("ix_campaign_items_batch_id"), table_name="campaign_items")
    op.drop_table("campaign_items")
    op.drop_index(
        "ix_campaign_batches_waiting", table_name="campaign_batches", postgresql_where=sa.text("status = 'waiting'")
    )
    op.drop_index(op.f("ix_campaign_batches_trace_id"), table_name="campaign_batches")
    op.drop_index(
        "ix_campaign_batches_open",
        table_name="campaign_batches",
        postgresql_where=sa.text("status in ('sent', 'running')"),
    )
    op.drop_table("campaign_batches")
    op.drop_table("campaigns")
