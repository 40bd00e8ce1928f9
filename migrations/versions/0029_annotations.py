"""What people say about traces, blocks and candidates."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY

revision: str = "0029"
down_revision: str | Sequence[str] | None = "0028"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "annotations",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("trace_id", sa.BigInteger(), nullable=False),
        sa.Column("block_id", sa.BigInteger(), nullable=True),
        sa.Column("candidate_id", sa.BigInteger(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("labels", ARRAY(sa.Text()), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.CheckConstraint("block_id is null or candidate_id is null", name=op.f("ck_annotations_about")),
        sa.CheckConstraint("verdict in ('good', 'bad')", name=op.f("ck_annotations_verdict")),
        sa.ForeignKeyConstraint(["trace_id"], ["traces.id"], name="fk_annotations_trace_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["block_id"], ["blocks.id"], name="fk_annotations_block_id", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["candidate_id"], ["candidates.id"], name="fk_annotations_candidate_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_annotations")),
    )
    about = ["trace_id", "author", sa.text("coalesce(block_id, 0)"), sa.text("coalesce(candidate_id, 0)")]
    op.create_index("uq_annotations_about", "annotations", about, unique=True)
    for column in ("block_id", "candidate_id"):
        known = sa.text(f"{column} is not null")
        op.create_index(f"ix_annotations_{column}", "annotations", [column], postgresql_where=known)


def downgrade() -> None:
    op.drop_table("annotations")
