"""How many steps were done when an environment was started: the clock may be set back."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0020"
down_revision: str | Sequence[str] | None = "0019"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("environments", sa.Column("steps_done", sa.BigInteger(), nullable=False, server_default="0"))
    op.execute("""
        update environments e set steps_done = (
          select count(*) from steps s where s.trace_id = e.trace_id and s.kind = 'execute' and s.status = 'done'
            and s.finished_at < e.started_at)
    """)


def downgrade() -> None:
    op.drop_column("environments", "steps_done")
