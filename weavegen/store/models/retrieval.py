"""Examples, retrievals with their hits, and the indexes."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now, one_of, reference
from weavegen.trace.blocks import BlockType


class Example(Base):
    __tablename__ = "examples"
    __table_args__ = (
        one_of("type", "type", BlockType),
        {"comment": "Hand-written blocks that retrieval may return (weavegen examples load)."},
    )

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of type and body, hexadecimal.", unique=True)
    type: Mapped[str] = column("Type of the block.")
    description: Mapped[str] = column("What it is an example of.")
    question: Mapped[str] = column("The question that it answers well.")
    score: Mapped[float] = column("Score: log odds of yes.")
    body: Mapped[str] = column("The block's body.")
    created_at: Mapped[datetime.datetime] = now("When it was first loaded.")


class Retrieval(Base):
    __tablename__ = "retrievals"
    __table_args__ = (
        sa.UniqueConstraint("step_id"),
        {"comment": "Queries that were run before a block was written."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    query: Mapped[str] = column("The query, with a restriction of the type if the trace was short.")
    before: Mapped[int] = column("Blocks below this index, which had left the window, were searched.")
    least_score: Mapped[float] = column("Hits below this score were dropped.")


class RetrievalHit(Base):
    __tablename__ = "retrieval_hits"
    __table_args__ = (
        sa.UniqueConstraint("retrieval_id", "rank"),
        sa.CheckConstraint("(block_id is null) <> (example_id is null)", name="one_source"),
        {"comment": "Hits of queries, best first."},
    )

    id: Mapped[int] = key()
    retrieval_id: Mapped[int] = reference("retrievals.id", "Its query.")
    rank: Mapped[int] = column("Rank, from 1, the best.")
    block_id: Mapped[int | None] = reference("blocks.id", "The block that was found.", index=True)
    example_id: Mapped[int | None] = reference("examples.id", "Or the example that was found.", index=True)
    score: Mapped[float] = column("BM25 score.")
    used: Mapped[bool] = column("Whether it was put into the prompt.")


class Segment(Base):
    __tablename__ = "segments"
    __table_args__ = {"comment": "Indexes of single traces, in segments of equal size; see search/trace_index.py."}

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    number: Mapped[int] = column("Position in the trace's index, from 0.", primary_key=True, autoincrement=False)
    end: Mapped[int] = column("Index after its last block.")
    documents: Mapped[bytes] = column("Ids, lengths in words and types of its blocks.")
    spread: Mapped[bytes] = column("Document frequencies up to its end: how many words occur in how many blocks.")


class Posting(Base):
    __tablename__ = "postings"
    __table_args__ = {"comment": "Occurrences of words in segments."}

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    segment: Mapped[int] = column("Number of its segment.", primary_key=True, autoincrement=False)
    documents: Mapped[int] = column("Number of blocks with the word, up to the segment's end.")
    blocks: Mapped[bytes] = column("Pairs of position in the index and number of occurrences.")


class CorpusQueue(Base):
    __tablename__ = "corpus_queue"
    __table_args__ = {"comment": "Blocks that are not in the corpus index yet."}

    block_id: Mapped[int] = reference("blocks.id", "The block.", primary_key=True)


class CorpusSegment(Base):
    __tablename__ = "corpus_segments"
    __table_args__ = (
        sa.Index("ix_corpus_segments_live", "level", "id", postgresql_where=sa.text("retired_at is null")),
        {"comment": "The index of all traces' blocks, in segments that never change; see search/corpus_index.py."},
    )

    id: Mapped[int] = key()
    level: Mapped[int] = column("0: made from the queue. Each segment above holds eight of the level below.")
    documents: Mapped[int] = column("Number of its blocks.")
    words: Mapped[int] = column("Number of words in these blocks.")
    created_at: Mapped[datetime.datetime] = now("When it was made.")
    retired_at: Mapped[datetime.datetime | None] = column("When a larger segment replaced it; null: it is in use.")
    # Arrays with one number for each block, little-endian.
    ids: Mapped[bytes] = column("Ids of the blocks, int64 each.")
    traces: Mapped[bytes] = column("Their traces, int64 each.")
    jobs: Mapped[bytes] = column("Their jobs, int64 each.")
    indexes: Mapped[bytes] = column("Their indexes in the trace, int32 each.")
    lengths: Mapped[bytes] = column("Their lengths in words, uint32 each.")
    types: Mapped[bytes] = column("Their types, uint8 each; see search/documents.py.")
    goods: Mapped[bytes] = column("Their raw scores, float64 each; NaN: no score, not legal Python, or failed.")
    recorded: Mapped[bytes] = column("When they were recorded, in seconds since the epoch, float64 each.")


class CorpusPosting(Base):
    __tablename__ = "corpus_postings"
    # Without a foreign key, as there are many rows.
    __table_args__ = {"comment": "Occurrences of words in segments of the corpus index."}

    segment: Mapped[int] = column("corpus_segments.id.", primary_key=True, autoincrement=False)
    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    documents: Mapped[int] = column("Number of blocks of the segment with the word.", type_=sa.Integer)
    data: Mapped[bytes] = column("Which blocks, and how often; see search/postings.py.")


class CorpusWord(Base):
    __tablename__ = "corpus_words"
    __table_args__ = {"comment": "The words of the corpus index."}

    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    documents: Mapped[int] = column("Number of indexed blocks with the word, dropped blocks included.")


class CorpusStatistics(Base):
    __tablename__ = "corpus_statistics"
    __table_args__ = {"comment": "Statistics over all words of the corpus index, for BM25. One row."}

    id: Mapped[int] = column("1.", primary_key=True, autoincrement=False)
    documents: Mapped[int] = column("Number of indexed blocks, dropped blocks included.")
    spread: Mapped[bytes] = column("Pairs (blocks, words) of uint32: how many words occur in how many blocks.")
    average_rarity: Mapped[float] = column("Mean inverse document frequency over all words.")
