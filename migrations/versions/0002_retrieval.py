"""Retrieval: examples to seed it with, and the provenance of what was recalled."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | Sequence[str] | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


READER = """
do $$
begin
  execute format('grant select on all tables in schema %I to weavegen_reader', current_schema());
exception
  when insufficient_privilege or undefined_object then
    raise notice 'weavegen_reader could not be granted the new tables: have a superuser do it';
end
$$
"""


def upgrade() -> None:
    op.create_table(
        "examples",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("sha256", sa.Text(), nullable=False, comment="Hash of type and body, hexadecimal."),
        sa.Column("type", sa.Text(), nullable=False, comment="Type of the block."),
        sa.Column("description", sa.Text(), nullable=False, comment="What it is an example of."),
        sa.Column("question", sa.Text(), nullable=False, comment="The question that it answers well."),
        sa.Column("score", sa.Double(), nullable=False, comment="How well: log odds of yes."),
        sa.Column("body", sa.Text(), nullable=False, comment="The block's body."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was loaded first.",
        ),
        sa.CheckConstraint(
            "type in ('genesis', 'bootstrap', 'task-reminder', 'observation', 'orientation', 'action', 'error', 'debug', 'backtrack', 'expectation', 'option', 'observation-inference', 'evaluation', 'outcome', 'return')",
            name=op.f("ck_examples_type"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_examples")),
        sa.UniqueConstraint("sha256", name=op.f("uq_examples_sha256")),
        comment="Good blocks that retrieval is seeded with (weavegen examples load).",
    )
    op.create_table(
        "retrievals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("trace_id", sa.BigInteger(), nullable=False, comment="Its trace."),
        sa.Column("step_id", sa.BigInteger(), nullable=False, comment="The step that ran it."),
        sa.Column(
            "query", sa.Text(), nullable=False, comment="The query, with the type restriction of a young trace."
        ),
        sa.Column(
            "before",
            sa.BigInteger(),
            nullable=False,
            comment="Cutoff: only blocks of the trace below this index, which had left the window.",
        ),
        sa.Column("least_score", sa.Double(), nullable=False, comment="Hits below this score were dropped."),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_retrievals_step_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["trace_id"], ["traces.id"], name=op.f("fk_retrievals_trace_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrievals")),
        sa.UniqueConstraint("step_id", name=op.f("uq_retrievals_step_id")),
        comment="Queries that were run before a block was written, and what they could see.",
    )
    op.create_index(op.f("ix_retrievals_trace_id"), "retrievals", ["trace_id"], unique=False)
    op.create_table(
        "retrieval_hits",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column("retrieval_id", sa.BigInteger(), nullable=False, comment="Its query."),
        sa.Column("rank", sa.BigInteger(), nullable=False, comment="From 1, the best."),
        sa.Column("block_id", sa.BigInteger(), nullable=True, comment="The block found."),
        sa.Column("example_id", sa.BigInteger(), nullable=True, comment="Or the example found."),
        sa.Column("score", sa.Double(), nullable=False, comment="BM25."),
        sa.Column("used", sa.Boolean(), nullable=False, comment="Whether it was put into the prompt."),
        sa.CheckConstraint(
            "(block_id is null) <> (example_id is null)", name=op.f("ck_retrieval_hits_one_source")
        ),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_retrieval_hits_block_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["example_id"], ["examples.id"], name=op.f("fk_retrieval_hits_example_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["retrieval_id"], ["retrievals.id"], name=op.f("fk_retrieval_hits_retrieval_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retrieval_hits")),
        sa.UniqueConstraint("retrieval_id", "rank", name=op.f("uq_retrieval_hits_retrieval_id_rank")),
        comment="What a query found, best first; `used` says what the model was shown.",
    )
    op.create_index(op.f("ix_retrieval_hits_block_id"), "retrieval_hits", ["block_id"], unique=False)
    op.create_index(op.f("ix_retrieval_hits_example_id"), "retrieval_hits", ["example_id"], unique=False)
    op.alter_column(
        "candidates",
        "type",
        existing_type=sa.TEXT(),
        comment="Type of that block; bm25-query: a query for its header.",
        existing_comment="Type of that block.",
        existing_nullable=False,
    )
    op.execute(READER)


def downgrade() -> None:
    op.alter_column(
        "candidates",
        "type",
        existing_type=sa.TEXT(),
        comment="Type of that block.",
        existing_comment="Type of that block; bm25-query: a query for its header.",
        existing_nullable=False,
    )
    op.drop_index(op.f("ix_retrieval_hits_example_id"), table_name="retrieval_hits")
    op.drop_index(op.f("ix_retrieval_hits_block_id"), table_name="retrieval_hits")
    op.drop_table("retrieval_hits")
    op.drop_index(op.f("ix_retrievals_trace_id"), table_name="retrievals")
    op.drop_table("retrievals")
    op.drop_table("examples")
