"""Forks: traces that continue from a block of another trace."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0006"
down_revision: str | Sequence[str] | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "traces",
        sa.Column(
            "fork_of", sa.BigInteger(), nullable=True, comment="The trace whose first blocks it shares; null: no fork."
        ),
    )
    op.add_column(
        "traces",
        sa.Column(
            "fork_at",
            sa.BigInteger(),
            nullable=True,
            comment="Of a fork: its blocks below this index are copies of the other trace's; it wrote those from "
            "here on.",
        ),
    )
    op.add_column(
        "traces",
        sa.Column(
            "shared_bytes",
            sa.BigInteger(),
            server_default="0",
            nullable=False,
            comment="Of its bytes, those of such copies; 0 before it starts.",
        ),
    )
    op.add_column(
        "traces",
        sa.Column(
            "lag",
            sa.Double(),
            server_default="0",
            nullable=False,
            comment="Seconds that its clock is behind: a fork's goes on from the moment at which the other trace "
            "stood there.",
        ),
    )
    op.create_foreign_key(op.f("fk_traces_fork_of"), "traces", "traces", ["fork_of"], ["id"])
    op.create_index("ix_traces_fork_of", "traces", ["fork_of"], postgresql_where=sa.text("fork_of is not null"))
    op.create_check_constraint(op.f("ck_traces_fork"), "traces", "(fork_of is null) = (fork_at is null)")
    op.add_column(
        "ticks",
        sa.Column(
            "inherited",
            postgresql.JSONB(none_as_null=True),
            nullable=True,
            comment="Of a tick in which its trace was forked off: under which terms others wrote the blocks before, "
            "in order: until (the index behind them), seed, lag, revision. Null: it is all its trace's own.",
        ),
    )
    op.add_column(
        "steps",
        sa.Column(
            "copy_of",
            sa.BigInteger(),
            nullable=True,
            comment="In a fork: the step of another trace that this is a copy of, for replay; what it cost and what "
            "the model was asked in it is kept there alone. Null: its trace's own.",
        ),
    )
    op.create_foreign_key(op.f("fk_steps_copy_of"), "steps", "steps", ["copy_of"], ["id"], ondelete="SET NULL")
    op.create_index("ix_steps_copy_of", "steps", ["copy_of"], postgresql_where=sa.text("copy_of is not null"))


def downgrade() -> None:
    op.drop_column("steps", "copy_of")
    op.drop_column("ticks", "inherited")
    op.drop_constraint(op.f("ck_traces_fork"), "traces")
    for name in ("lag", "shared_bytes", "fork_at", "fork_of"):
        op.drop_column("traces", name)
