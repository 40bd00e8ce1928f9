"""The list of views; the views themselves are in weavegen/store/views/."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "views",
        sa.Column("name", sa.Text(), nullable=False, comment="Its name."),
        sa.Column("position", sa.BigInteger(), nullable=False, comment="They are made in this order."),
        sa.Column("sha256", sa.Text(), nullable=False, comment="Hash of the text that it was made of, hexadecimal."),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_views")),
        comment="The views that weavegen has made here, and of which text (store/views/).",
    )


def downgrade() -> None:
    op.drop_table("views")
