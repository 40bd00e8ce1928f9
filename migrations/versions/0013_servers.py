"""Lent model servers: who lends them, and since when."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | Sequence[str] | None = "0012"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column(
        "jobs",
        sa.Column("enqueued_by", sa.Text(), nullable=True, comment="Who enqueued it; null: that was not kept yet."),
    )
    op.create_table(
        "model_servers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("url", sa.Text(), nullable=False, comment="Base URL."),
        sa.Column("owner", sa.Text(), nullable=False, comment="Who lends it."),
        sa.Column("model", sa.Text(), nullable=False, comment="The model that it served when it was added."),
        sa.Column(
            "added_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it joined the pool.",
        ),
        sa.Column(
            "removed_at", sa.DateTime(timezone=True), nullable=True, comment="When it left the pool; null: it is in it."
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_servers")),
        comment="Model servers that people lend to the pool, beside those of OPENAI_BASE_URL.",
    )
    op.create_index(
        "uq_model_servers_present",
        "model_servers",
        ["url"],
        unique=True,
        postgresql_where=sa.text("removed_at is null"),
    )
    op.create_table(
        "model_usage",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column(
            "at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was answered.",
        ),
        sa.Column("server", sa.Text(), nullable=False, comment="Base URL of the server."),
        sa.Column("owner", sa.Text(), nullable=True, comment="Who lent it then; null: it is one of OPENAI_BASE_URL."),
        sa.Column(
            "trace_id",
            sa.BigInteger(),
            nullable=False,
            comment="traces.id of the trace that asked, or whose texts were asked about.",
        ),
        sa.Column(
            "kind", sa.Text(), nullable=False, comment="sample, score, execute (the evaluator in callbacks) or rescore."
        ),
        sa.Column("requests", sa.BigInteger(), nullable=False, comment="Requests that were answered."),
        sa.Column("sequences", sa.BigInteger(), nullable=False, comment="Prompts times continuations."),
        sa.Column(
            "prompt_tokens",
            sa.BigInteger(),
            nullable=False,
            comment="Prompt tokens of all sequences, as the server's own counters have them.",
        ),
        sa.Column(
            "cached_tokens",
            sa.BigInteger(),
            nullable=True,
            comment="Of these, those from the prefix cache, told for one sequence of a request with one prompt; "
            "null: nothing was told.",
        ),
        sa.Column("sampled_tokens", sa.BigInteger(), nullable=False, comment="Sampled tokens."),
        sa.Column(
            "uncounted",
            sa.BigInteger(),
            nullable=False,
            comment="Requests whose tokens the server did not tell: they are in no sum of tokens.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_usage")),
        comment="The ledger: what model servers answered, a row for the requests of one step to one server. "
        "pool_usage sums it up.",
    )


def downgrade() -> None:
    op.drop_table("model_usage")
    op.drop_index(
        "uq_model_servers_present", table_name="model_servers", postgresql_where=sa.text("removed_at is null")
    )
    op.drop_table("model_servers")
    op.drop_column("jobs", "enqueued_by")
