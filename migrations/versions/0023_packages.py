"""Packages that the Python code of traces can import, recorded with each job."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0023"
down_revision: str | Sequence[str] | None = "0022"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "packages",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("requirements", sa.Text(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=True),
        sa.Column("versions", JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_packages")),
        sa.UniqueConstraint("sha256", name=op.f("uq_packages_sha256")),
    )
    op.add_column("jobs", sa.Column("packages_id", sa.BigInteger(), nullable=True))
    op.create_foreign_key(op.f("fk_jobs_packages_id_packages"), "jobs", "packages", ["packages_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint(op.f("fk_jobs_packages_id_packages"), "jobs")
    op.drop_column("jobs", "packages_id")
    op.drop_table("packages")
