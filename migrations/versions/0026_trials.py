"""What came of candidates that ran in a copy of the environment."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0026"
down_revision: str | Sequence[str] | None = "0025"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "trials",
        sa.Column("step_id", sa.BigInteger(), nullable=False),
        sa.Column("candidate_id", sa.BigInteger(), nullable=False),
        sa.Column("trace_id", sa.BigInteger(), nullable=False),
        sa.Column("ran", sa.Boolean(), nullable=True),
        sa.Column("not_tried", sa.Text(), nullable=True),
        sa.Column("exception", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("value", JSONB(), nullable=True),
        sa.Column("assertions", JSONB(), nullable=False),
        sa.Column("evaluations", JSONB(), nullable=False),
        sa.Column("views", JSONB(), nullable=False),
        sa.Column("output", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("step_id", "candidate_id", name="pk_trials"),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name="fk_trials_step_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidates.id"], name="fk_trials_candidate_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name="fk_trials_trace_id", ondelete="CASCADE"),
    )
    op.create_index("ix_trials_candidate_id", "trials", ["candidate_id"])
    op.create_index("ix_trials_trace_id", "trials", ["trace_id"])


def downgrade() -> None:
    op.drop_table("trials")
