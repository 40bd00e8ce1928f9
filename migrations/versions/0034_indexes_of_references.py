"""Indexes of the references by which a text, a task or tools are found that nothing uses any more.

Revision ID: 0034
Revises: 0033
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0034"
down_revision: str | Sequence[str] | None = "0033"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_index("ix_job_documents_document_id", "job_documents", ["document_id"])
    for table, column in (("blocks", "toolset_id"), ("traces", "harbor_task_id")):
        op.create_index(f"ix_{table}_{column}", table, [column], postgresql_where=sa.text(f"{column} is not null"))


def downgrade() -> None:
    for table, column in (("traces", "harbor_task_id"), ("blocks", "toolset_id"), ("job_documents", "document_id")):
        op.drop_index(f"ix_{table}_{column}", table)
