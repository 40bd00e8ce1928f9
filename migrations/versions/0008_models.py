"""The model that writes a job, in addition to the model that was requested."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0008"
down_revision: str | Sequence[str] | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ASKED = "Model asked for; null: the only one that the server has."
WRITES = "The model that writes it; null: none was asked yet."


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column(
            "asked_model", sa.Text(), nullable=True, comment="Model asked for; null: whichever the servers have."
        ),
    )
    op.execute("update jobs set asked_model = model")
    op.alter_column("jobs", "model", comment=WRITES, existing_comment=ASKED)


def downgrade() -> None:
    op.execute("update jobs set model = asked_model")
    op.alter_column("jobs", "model", comment=ASKED, existing_comment=WRITES)
    op.drop_column("jobs", "asked_model")
