"""The index of the whole corpus, for retrieval beyond a trace."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | Sequence[str] | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

RECALLABLE = "('orientation', 'action', 'evaluation', 'debug', 'error')"
"""The same types as in weavegen/search/documents.py."""
# A trigger and not a statement of the program, so that all blocks are found, whoever records them and however many at
# a time.
QUEUE_BLOCKS = f"""
create function queue_blocks() returns trigger language plpgsql as $$
begin
  insert into corpus_queue (block_id) select id from new_blocks where type in {RECALLABLE};
  return null;
end
$$;
create trigger queue_blocks after insert on blocks
referencing new table as new_blocks for each statement execute function queue_blocks();
comment on function queue_blocks is 'Puts new blocks into corpus_queue, from where they are indexed.';
"""
# They are always read whole, and are nearly incompressible.
NOT_COMPRESSED = {
    "corpus_segments": ("ids", "traces", "jobs", "indexes", "lengths", "types", "goods", "recorded"),
    "corpus_postings": ("data",),
}
SEGMENTS_COMMENT = "The index of what traces left behind, in parts of equal size; see retrieval/trace_index.py."
SEGMENTS_COMMENT_BEFORE = "The index of what traces left behind, in parts of equal size; see retrieval.py."


def upgrade() -> None:
    op.create_table(
        "corpus_queue",
        sa.Column("block_id", sa.BigInteger(), nullable=False, comment="The block."),
        sa.ForeignKeyConstraint(["block_id"], ["blocks.id"], name=op.f("fk_corpus_queue_block_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("block_id", name=op.f("pk_corpus_queue")),
        comment="Blocks that can be recalled and are in no segment of the corpus index yet.",
    )
    op.create_table(
        "corpus_segments",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False, comment="Identity."),
        sa.Column(
            "level",
            sa.BigInteger(),
            nullable=False,
            comment="0: made of the queue; each level higher holds eight of the one below.",
        ),
        sa.Column("documents", sa.BigInteger(), nullable=False, comment="Blocks in it."),
        sa.Column("words", sa.BigInteger(), nullable=False, comment="Words that these have, all together."),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="When it was made.",
        ),
        sa.Column(
            "retired_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="When a larger one took its place; it is deleted once no query reads it any more.",
        ),
        sa.Column("ids", sa.LargeBinary(), nullable=False, comment="Ids of the blocks, int64 each."),
        sa.Column("traces", sa.LargeBinary(), nullable=False, comment="Their traces, int64."),
        sa.Column("jobs", sa.LargeBinary(), nullable=False, comment="Their jobs, int64."),
        sa.Column("indexes", sa.LargeBinary(), nullable=False, comment="Their indexes in the trace, int32."),
        sa.Column("lengths", sa.LargeBinary(), nullable=False, comment="Their lengths in words, uint32."),
        sa.Column("types", sa.LargeBinary(), nullable=False, comment="Their types, uint8; see retrieval/documents.py."),
        sa.Column(
            "goods",
            sa.LargeBinary(),
            nullable=False,
            comment="Their raw scores, float64; NaN where none, or not legal Python, or it failed.",
        ),
        sa.Column(
            "recorded",
            sa.LargeBinary(),
            nullable=False,
            comment="When they were recorded, seconds since the epoch, float64.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpus_segments")),
        comment="The index of all traces' blocks in parts that never change; see retrieval/corpus_index.py.",
    )
    op.create_index(
        "ix_corpus_segments_live",
        "corpus_segments",
        ["level", "id"],
        unique=False,
        postgresql_where=sa.text("retired_at is null"),
    )
    op.create_table(
        "corpus_postings",
        sa.Column("segment", sa.BigInteger(), autoincrement=False, nullable=False, comment="corpus_segments.id."),
        sa.Column("word", sa.Text(), nullable=False, comment="The word, in lower case."),
        sa.Column("documents", sa.Integer(), nullable=False, comment="Blocks of the segment with the word."),
        sa.Column("data", sa.LargeBinary(), nullable=False, comment="Which, and how often; see retrieval/postings.py."),
        sa.PrimaryKeyConstraint("segment", "word", name=op.f("pk_corpus_postings")),
        comment="Where in a segment of the corpus index a word stands. There are many: so no foreign key.",
    )
    op.create_table(
        "corpus_words",
        sa.Column("word", sa.Text(), nullable=False, comment="The word, in lower case."),
        sa.Column(
            "documents",
            sa.BigInteger(),
            nullable=False,
            comment="Indexed blocks with the word, those dropped since among them.",
        ),
        sa.PrimaryKeyConstraint("word", name=op.f("pk_corpus_words")),
        comment="The words of the corpus index.",
    )
    op.create_table(
        "corpus_statistics",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False, comment="1."),
        sa.Column(
            "documents", sa.BigInteger(), nullable=False, comment="Indexed blocks, those dropped since among them."
        ),
        sa.Column(
            "spread",
            sa.LargeBinary(),
            nullable=False,
            comment="How many words stand in so many blocks: pairs (blocks, words) of uint32.",
        ),
        sa.Column(
            "average_rarity",
            sa.Double(),
            nullable=False,
            comment="Inverse document frequency, the mean over all words.",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_corpus_statistics")),
        comment="What BM25 asks about all words of the corpus index. One row.",
    )
    for table, columns in NOT_COMPRESSED.items():
        for column in columns:
            op.execute(f"alter table {table} alter column {column} set storage external")
    # Most updates of this table then fit on the same page and need no new entry in the index.
    op.execute("alter table corpus_words set (fillfactor = 70)")
    op.execute("insert into corpus_statistics values (1, 0, '', 0)")
    op.create_table_comment("segments", SEGMENTS_COMMENT, existing_comment=SEGMENTS_COMMENT_BEFORE)
    op.execute(QUEUE_BLOCKS)
    op.execute(f"insert into corpus_queue (block_id) select id from blocks where type in {RECALLABLE}")


def downgrade() -> None:
    op.create_table_comment("segments", SEGMENTS_COMMENT_BEFORE, existing_comment=SEGMENTS_COMMENT)
    op.execute("drop trigger queue_blocks on blocks")
    op.execute("drop function queue_blocks")
    op.drop_table("corpus_statistics")
    op.drop_table("corpus_words")
    op.drop_table("corpus_postings")
    op.drop_index(
        "ix_corpus_segments_live", table_name="corpus_segments", postgresql_where=sa.text("retired_at is null")
    )
    op.drop_table("corpus_segments")
    op.drop_table("corpus_queue")
