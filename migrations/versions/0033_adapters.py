"""The adapters that servers of the pool are to serve, which a server forgets when it is restarted.

Revision ID: 0033
Revises: 0032
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0033"
down_revision: str | Sequence[str] | None = "0032"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "adapters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_adapters")),
    )


def downgrade() -> None:
    op.drop_table("adapters")
