"""Finished ticks in order, which `weavegen spans` queries every few seconds."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | Sequence[str] | None = "0013"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_index(
        "ix_ticks_finished", "ticks", ["finished_at", "id"], postgresql_where=sa.text("finished_at is not null")
    )


def downgrade() -> None:
    op.drop_index("ix_ticks_finished", "ticks")
