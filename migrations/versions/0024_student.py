"""The model that is to learn from a job's traces, if another one writes them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | Sequence[str] | None = "0023"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("student", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("jobs", "student")
