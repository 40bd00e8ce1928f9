"""What went wrong at model servers, and why a job was paused."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0016"
down_revision: str | Sequence[str] | None = "0015"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("pause_reason", sa.Text(), nullable=True))
    op.create_table(
        "server_health",
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("errors", sa.BigInteger(), nullable=False),
        sa.Column("errors_since_ok", sa.BigInteger(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("last_error_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_ok_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("url", "kind", name=op.f("pk_server_health")),
    )


def downgrade() -> None:
    op.drop_table("server_health")
    op.drop_column("jobs", "pause_reason")
