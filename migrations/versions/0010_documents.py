"""The documents that a job's researchers may read."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0010"
down_revision: str | Sequence[str] | None = "0009"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "documents",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("sha256", sa.Text(), nullable=False, comment="Hash of the text in UTF-8, hexadecimal."),
        sa.Column("text", sa.Text(), nullable=False, comment="The text. Lines end with a line feed."),
        sa.Column("characters", sa.BigInteger(), nullable=False, comment="Its length."),
        sa.Column("lines", sa.BigInteger(), nullable=False, comment="Its lines; the last one need not end."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When a job was first given it.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_documents")),
        sa.UniqueConstraint("sha256", name=op.f("uq_documents_sha256")),
        comment="Texts that jobs were given to read, by content.",
    )
    op.create_table(
        "job_documents",
        sa.Column("job_id", sa.BigInteger(), nullable=False, comment="Its job."),
        sa.Column("path", sa.Text(), nullable=False, comment="Path in the job's folder, with slashes."),
        sa.Column("document_id", sa.BigInteger(), nullable=False, comment="The text."),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_documents_job_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["document_id"], ["documents.id"], name=op.f("fk_job_documents_document_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "path", name=op.f("pk_job_documents")),
        comment="Which documents a job was given, and as what.",
    )


def downgrade() -> None:
    op.drop_table("job_documents")
    op.drop_table("documents")
