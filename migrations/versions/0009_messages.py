"""Conversations: blocks that are messages, the state passed between ticks, and traces requested by other traces."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0009"
down_revision: str | Sequence[str] | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BEFORE = (
    "genesis", "bootstrap", "task-reminder", "observation", "orientation", "action", "error", "debug", "backtrack",
    "expectation", "option", "observation-inference", "evaluation", "outcome", "return",
)  # fmt: skip
MESSAGES = ("system", "user", "assistant", "tool")
KIND = "sample, lint, score, retrieve, execute or work (the ticks of a subagent)."
KINDS = (
    "sample, lint, score, retrieve, execute, consult; or what no worker takes: work (a subagent's ticks), "
    "delegate (a trace of another agent), await (a person)."
)


def block_types(types: Sequence[str]) -> None:
    """The types that blocks and examples may have."""
    for table in ("blocks", "examples"):
        op.drop_constraint(op.f(f"ck_{table}_type"), table, type_="check")
        named = ", ".join(f"'{type}'" for type in types)
        op.create_check_constraint(op.f(f"ck_{table}_type"), table, f"type in ({named})")


def upgrade() -> None:
    block_types(BEFORE + MESSAGES)
    op.alter_column("steps", "kind", comment=KINDS, existing_comment=KIND)
    op.add_column(
        "ticks",
        sa.Column(
            "state",
            postgresql.JSONB(none_as_null=True, astext_type=sa.Text()),
            nullable=True,
            comment="What the tick before handed on to this one; null: nothing.",
        ),
    )
    op.add_column(
        "prompts",
        sa.Column(
            "length",
            sa.BigInteger(),
            nullable=True,
            comment="Of a conversation: tokens that it may take in all, by setting or as the server says.",
        ),
    )
    op.add_column(
        "traces",
        sa.Column(
            "called_by",
            sa.BigInteger(),
            nullable=True,
            comment="The step of another trace that asked for it and waits for what it returns; null: none.",
        ),
    )
    op.create_foreign_key(op.f("fk_traces_called_by"), "traces", "steps", ["called_by"], ["id"], ondelete="SET NULL")
    op.create_index("ix_traces_called_by", "traces", ["called_by"], postgresql_where=sa.text("called_by is not null"))
    op.add_column(
        "jobs",
        sa.Column(
            "called_by",
            sa.BigInteger(),
            nullable=True,
            comment="The job whose traces ask for the traces of this one; null: people enqueued it.",
        ),
    )
    op.create_foreign_key(op.f("fk_jobs_called_by"), "jobs", "jobs", ["called_by"], ["id"], ondelete="CASCADE")
    op.create_unique_constraint(op.f("uq_jobs_called_by_agent"), "jobs", ["called_by", "agent"])


def downgrade() -> None:
    op.drop_constraint(op.f("uq_jobs_called_by_agent"), "jobs", type_="unique")
    op.drop_column("jobs", "called_by")
    op.drop_column("traces", "called_by")
    op.drop_column("prompts", "length")
    op.drop_column("ticks", "state")
    op.alter_column("steps", "kind", comment=KIND, existing_comment=KINDS)
    block_types(BEFORE)
