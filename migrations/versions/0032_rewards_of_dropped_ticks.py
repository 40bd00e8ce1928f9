"""Subagents' ticks whose blocks were dropped, because their caller's tick was started over, have no rewards.

Revision ID: 0032
Revises: 0031
"""

from collections.abc import Sequence

from alembic import op

revision: str = "0032"
down_revision: str | Sequence[str] | None = "0031"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.execute(
        """
        UPDATE ticks SET reward = NULL, protected = false, not_evaluated = 0
        WHERE caller IS NOT NULL AND finished_at IS NOT NULL AND reward IS NOT NULL AND NOT EXISTS (
          SELECT FROM blocks b
          WHERE b.trace_id = ticks.trace_id AND b.index = ticks.first_block AND b.tick = ticks.number
        )
        """
    )


def downgrade() -> None:
    """The rewards are not brought back: they were of blocks that are gone."""
