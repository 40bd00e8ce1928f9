"""Releases: frozen snapshots of the corpus."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision: str = "0005"
down_revision: str | Sequence[str] | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "releases",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("name", sa.Text(), nullable=False, comment="What the user called it."),
        sa.Column("format", sa.Text(), nullable=False, comment="Format of the export."),
        sa.Column(
            "condition", sa.Text(), nullable=True, comment="The SQL condition over the format's view; null: all rows."
        ),
        sa.Column("row_limit", sa.BigInteger(), nullable=True, comment="Rows of the view at most; null: no limit."),
        sa.Column("options", JSONB(none_as_null=True), nullable=False, comment="Options of the format."),
        sa.Column(
            "splits", JSONB(none_as_null=True), nullable=False, comment="Names and shares of the splits, in order."
        ),
        sa.Column("shard_bytes", sa.BigInteger(), nullable=False, comment="A new file began after so many bytes."),
        sa.Column(
            "threshold",
            sa.Double(),
            nullable=True,
            comment="Similarity of near-duplicates, which were removed; null: all were kept.",
        ),
        sa.Column("key_width", sa.BigInteger(), nullable=False, comment="Numbers that identify a row of the view."),
        sa.Column("rows", sa.BigInteger(), nullable=False, comment="Rows of the view that are in it."),
        sa.Column(
            "facts",
            JSONB(none_as_null=True),
            nullable=False,
            comment="What the manifest says of it: models, rubrics, settings, contamination.",
        ),
        sa.Column("version", sa.Text(), nullable=False, comment="Version of weavegen."),
        sa.Column("code_sha256", sa.Text(), nullable=False, comment="Hash of weavegen's own files, hexadecimal."),
        sa.Column("manifest_sha256", sa.Text(), nullable=False, comment="Hash of manifest.json, hexadecimal."),
        sa.Column("files", JSONB(none_as_null=True), nullable=False, comment="Bytes and hash of each file, by name."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_releases")),
        sa.UniqueConstraint("name", name=op.f("uq_releases_name")),
        comment="Snapshots that `weavegen release` froze: what is in them, and what made them.",
    )
    op.create_table(
        "release_keys",
        sa.Column("release_id", sa.BigInteger(), nullable=False, comment="Its release."),
        sa.Column("kind", sa.Text(), nullable=False, comment="kept; removed: a near-duplicate."),
        sa.Column(
            "part", sa.BigInteger(), autoincrement=False, nullable=False, comment="Position of the part, from 0."
        ),
        sa.Column(
            "keys",
            ARRAY(sa.BigInteger()),
            nullable=False,
            comment="Keys one after the other; of a removed row its own and that of the row that it is like.",
        ),
        sa.CheckConstraint("kind in ('kept', 'removed')", name=op.f("ck_release_keys_kind")),
        sa.ForeignKeyConstraint(
            ["release_id"], ["releases.id"], name=op.f("fk_release_keys_release_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("release_id", "kind", "part", name=op.f("pk_release_keys")),
        comment="The rows of releases, by the key of the format's view, in parts of bounded length.",
    )


def downgrade() -> None:
    op.drop_table("release_keys")
    op.drop_table("releases")
