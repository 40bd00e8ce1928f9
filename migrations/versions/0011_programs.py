"""Programs that FunSearch has evaluated."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0011"
down_revision: str | Sequence[str] | None = "0010"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "programs",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="The search."),
        sa.Column(
            "number",
            sa.BigInteger(),
            nullable=False,
            comment="Among all that the search has tried, from 0, without gaps.",
        ),
        sa.Column("tick", sa.BigInteger(), nullable=False, comment="Number of the tick in which it was tried."),
        sa.Column("generation", sa.BigInteger(), nullable=False, comment="From 1; 0: what the search began with."),
        sa.Column(
            "island",
            sa.BigInteger(),
            nullable=True,
            comment="Island that it was written for, from 0; null: what the search began with.",
        ),
        sa.Column(
            "parents",
            sa.ARRAY(sa.BigInteger()),
            nullable=False,
            comment="Numbers of the programs that the model was shown.",
        ),
        sa.Column(
            "source", sa.Text(), nullable=False, comment="Its text; empty where the model's message holds no program."
        ),
        sa.Column("score", sa.Double(), nullable=True, comment="Higher is better; null: it has none, see error."),
        sa.Column(
            "signature",
            sa.ARRAY(sa.Double()),
            nullable=False,
            comment="Its score on each instance; empty where it has none.",
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="Why it has no score; null: it has one."),
        sa.Column(
            "candidate_id",
            sa.BigInteger(),
            nullable=True,
            comment="The message that it was taken from; null: what the search began with.",
        ),
        sa.Column(
            "tried_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was recorded.",
        ),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name=op.f("fk_programs_candidate_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name=op.f("fk_programs_trace_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_programs")),
        sa.UniqueConstraint("trace_id", "number", name=op.f("uq_programs_trace_id_number")),
        comment="Every program that a search has tried, the failed ones too, with those it was made from.",
    )
    op.create_index(op.f("ix_programs_candidate_id"), "programs", ["candidate_id"])


def downgrade() -> None:
    op.drop_table("programs")
