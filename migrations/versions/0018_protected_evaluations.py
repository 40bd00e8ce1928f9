"""Protected evaluations: which they are, why one was not evaluated, and rewards that count no others."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0018"
down_revision: str | Sequence[str] | None = "0017"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    for table in ("evaluations", "ticks"):
        op.add_column(table, sa.Column("protected", sa.Boolean(), nullable=False, server_default="false"))
    op.add_column("evaluations", sa.Column("cause", sa.Text()))
    op.add_column("ticks", sa.Column("not_evaluated", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("ticks", "not_evaluated")
    op.drop_column("evaluations", "cause")
    for table in ("ticks", "evaluations"):
        op.drop_column(table, "protected")
