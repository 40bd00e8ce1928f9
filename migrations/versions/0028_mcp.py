"""MCP servers of jobs, calls of their tools, and the tools that conversations offer."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0028"
down_revision: str | Sequence[str] | None = "0027"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "toolsets",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_toolsets")),
        sa.UniqueConstraint("sha256", name=op.f("uq_toolsets_sha256")),
    )
    op.add_column("blocks", sa.Column("toolset_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("fk_blocks_toolset_id_toolsets"), "blocks", "toolsets", ["toolset_id"], ["id"])
    op.add_column("jobs", sa.Column("mcp_servers", JSONB(), nullable=True))
    op.add_column("exchanges", sa.Column("request", JSONB(), nullable=True))
    op.alter_column("exchanges", "answer", nullable=True)
    called = sa.text("request is not null")
    op.create_index("ix_exchanges_called", "exchanges", ["created_at"], postgresql_where=called)


def downgrade() -> None:
    op.drop_index("ix_exchanges_called", "exchanges")
    op.execute("delete from exchanges where answer is null")
    op.alter_column("exchanges", "answer", nullable=False)
    op.drop_column("exchanges", "request")
    op.drop_column("jobs", "mcp_servers")
    op.drop_constraint(op.f("fk_blocks_toolset_id_toolsets"), "blocks")
    op.drop_column("blocks", "toolset_id")
    op.drop_table("toolsets")
