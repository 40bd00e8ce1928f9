"""The version of weavegen that began a tick.

Revision ID: 0031
Revises: 0030
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | Sequence[str] | None = "0030"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("ticks", sa.Column("version", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("ticks", "version")
