"""An evaluator of its own, and which model read each prompt."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0022"
down_revision: str | Sequence[str] | None = "0021"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("evaluator", sa.Text(), nullable=True))
    op.add_column("prompts", sa.Column("model", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("prompts", "model")
    op.drop_column("jobs", "evaluator")
