"""Files with which /app begins in the boxes of a job."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0025"
down_revision: str | Sequence[str] | None = "0024"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "starting_files",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_starting_files")),
        sa.UniqueConstraint("sha256", name=op.f("uq_starting_files_sha256")),
    )
    op.add_column("jobs", sa.Column("starting_files_id", sa.BigInteger(), nullable=True))
    name = op.f("fk_jobs_starting_files_id_starting_files")
    op.create_foreign_key(name, "jobs", "starting_files", ["starting_files_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint(op.f("fk_jobs_starting_files_id_starting_files"), "jobs")
    op.drop_column("jobs", "starting_files_id")
    op.drop_table("starting_files")
