"""Examples, retrievals with their hits, and the indexes."""

from datetime import datetime

import sqlalchemy as sa

from weavegen.store.models.columns import column, now, reference, table
from weavegen.trace.blocks import BlockType

EXAMPLES = table(
    "examples",
    "Hand-written blocks that retrieval may return (weavegen examples load).",
    column("sha256", str, "Hash of type and body, hexadecimal.", unique=True),
    column("type", BlockType, "Type of the block."),
    column("description", str, "What it is an example of."),
    column("question", str, "The question that it answers well."),
    column("score", float, "Score: log odds of yes."),
    column("body", str, "The block's body."),
    now("created_at", "When it was first loaded."),
)

RETRIEVALS = table(
    "retrievals",
    "Queries that were run before a block was written.",
    reference("trace_id", "Its trace.", index=True),
    reference("step_id", "The step that ran it."),
    column("query", str, "The query, with a restriction of the type if the trace was short."),
    column("before", int, "Blocks below this index, which had left the window, were searched."),
    column("least_score", float, "Hits below this score were dropped."),
    sa.UniqueConstraint("step_id"),
)

HITS = table(
    "retrieval_hits",
    "Hits of queries, best first.",
    reference("retrieval_id", "Its query."),
    column("rank", int, "Rank, from 1, the best."),
    reference("block_id", "The block that was found.", index=True, nullable=True),
    reference("example_id", "Or the example that was found.", index=True, nullable=True),
    column("score", float, "BM25 score."),
    column("used", bool, "Whether it was put into the prompt."),
    sa.UniqueConstraint("retrieval_id", "rank"),
    sa.CheckConstraint("(block_id is null) <> (example_id is null)", name="one_source"),
)

SEGMENTS = table(
    "segments",
    "Indexes of single traces, in segments of equal size; see search/trace_index.py.",
    reference("trace_id", "Its trace.", primary_key=True),
    column("number", int, "Position in the trace's index, from 0.", primary_key=True, autoincrement=False),
    column("end", int, "Index after its last block."),
    column("documents", bytes, "Ids, lengths in words and types of its blocks."),
    column("spread", bytes, "Document frequencies up to its end: how many words occur in how many blocks."),
)

POSTINGS = table(
    "postings",
    "Occurrences of words in segments.",
    reference("trace_id", "Its trace.", primary_key=True),
    column("word", str, "The word, in lower case.", primary_key=True),
    column("segment", int, "Number of its segment.", primary_key=True, autoincrement=False),
    column("documents", int, "Number of blocks with the word, up to the segment's end."),
    column("blocks", bytes, "Pairs of position in the index and number of occurrences."),
)

CORPUS_QUEUE = table(
    "corpus_queue",
    "Blocks that are not in the corpus index yet.",
    reference("block_id", "The block.", primary_key=True),
)

CORPUS_SEGMENTS = table(
    "corpus_segments",
    "The index of all traces' blocks, in segments that never change; see search/corpus_index.py.",
    column("level", int, "0: made from the queue. Each segment above holds eight of the level below."),
    column("documents", int, "Number of its blocks."),
    column("words", int, "Number of words in these blocks."),
    now("created_at", "When it was made."),
    column("retired_at", datetime | None, "When a larger segment replaced it; null: it is in use."),
    # Arrays with one number for each block, little-endian.
    column("ids", bytes, "Ids of the blocks, int64 each."),
    column("traces", bytes, "Their traces, int64 each."),
    column("jobs", bytes, "Their jobs, int64 each."),
    column("indexes", bytes, "Their indexes in the trace, int32 each."),
    column("lengths", bytes, "Their lengths in words, uint32 each."),
    column("types", bytes, "Their types, uint8 each; see search/documents.py."),
    column("goods", bytes, "Their raw scores, float64 each; NaN: no score, not legal Python, or failed."),
    column("recorded", bytes, "When they were recorded, in seconds since the epoch, float64 each."),
    sa.Index("ix_corpus_segments_live", "level", "id", postgresql_where=sa.text("retired_at is null")),
)

# Without a foreign key, as there are many rows.
CORPUS_POSTINGS = table(
    "corpus_postings",
    "Occurrences of words in segments of the corpus index.",
    column("segment", int, "corpus_segments.id.", primary_key=True, autoincrement=False),
    column("word", str, "The word, in lower case.", primary_key=True),
    column("documents", sa.Integer, "Number of blocks of the segment with the word."),
    column("data", bytes, "Which blocks, and how often; see search/postings.py."),
)

CORPUS_WORDS = table(
    "corpus_words",
    "The words of the corpus index.",
    column("word", str, "The word, in lower case.", primary_key=True),
    column("documents", int, "Number of indexed blocks with the word, dropped blocks included."),
)

CORPUS_STATISTICS = table(
    "corpus_statistics",
    "Statistics over all words of the corpus index, for BM25. One row.",
    column("id", int, "1.", primary_key=True, autoincrement=False),
    column("documents", int, "Number of indexed blocks, dropped blocks included."),
    column("spread", bytes, "Pairs (blocks, words) of uint32: how many words occur in how many blocks."),
    column("average_rarity", float, "Mean inverse document frequency over all words."),
)
