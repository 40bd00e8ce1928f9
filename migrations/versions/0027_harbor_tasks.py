"""Harbor tasks, and the traces that work on them."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0027"
down_revision: str | Sequence[str] | None = "0026"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "harbor_tasks",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("task", JSONB(), nullable=False),
        sa.Column("metadata", JSONB(), nullable=False),
        sa.Column("files", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_harbor_tasks")),
        sa.UniqueConstraint("sha256", name=op.f("uq_harbor_tasks_sha256")),
    )
    op.add_column("traces", sa.Column("harbor_task_id", sa.BigInteger(), nullable=True))
    name = op.f("fk_traces_harbor_task_id_harbor_tasks")
    op.create_foreign_key(name, "traces", "harbor_tasks", ["harbor_task_id"], ["id"])


def downgrade() -> None:
    op.drop_constraint(op.f("fk_traces_harbor_task_id_harbor_tasks"), "traces")
    op.drop_column("traces", "harbor_task_id")
    op.drop_table("harbor_tasks")
