"""The cost of served tokens in the ledger."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0021"
down_revision: str | Sequence[str] | None = "0020"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("model_usage", sa.Column("cost", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("model_usage", "cost")
