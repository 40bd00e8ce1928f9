"""What can be recalled, what was, and the index."""

import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now, one_of, reference
from weavegen.trace.blocks import BlockType


class Example(Base):
    __tablename__ = "examples"
    __table_args__ = (
        one_of("type", "type", BlockType),
        {"comment": "Good blocks that retrieval is seeded with (weavegen examples load)."},
    )

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of type and body, hexadecimal.", unique=True)
    type: Mapped[str] = column("Type of the block.")
    description: Mapped[str] = column("What it is an example of.")
    question: Mapped[str] = column("The question that it answers well.")
    score: Mapped[float] = column("How well: log odds of yes.")
    body: Mapped[str] = column("The block's body.")
    created_at: Mapped[datetime.datetime] = now("When it was loaded first.")


class Retrieval(Base):
    __tablename__ = "retrievals"
    __table_args__ = (
        sa.UniqueConstraint("step_id"),
        {"comment": "Queries that were run before a block was written, and what they could see."},
    )

    id: Mapped[int] = key()
    trace_id: Mapped[int] = reference("traces.id", "Its trace.", index=True)
    step_id: Mapped[int] = reference("steps.id", "The step that ran it.")
    query: Mapped[str] = column("The query, with the type restriction of a young trace.")
    before: Mapped[int] = column("Cutoff: only blocks of the trace below this index, which had left the window.")
    least_score: Mapped[float] = column("Hits below this score were dropped.")


class RetrievalHit(Base):
    __tablename__ = "retrieval_hits"
    __table_args__ = (
        sa.UniqueConstraint("retrieval_id", "rank"),
        sa.CheckConstraint("(block_id is null) <> (example_id is null)", name="one_source"),
        {"comment": "What a query found, best first; `used` says what the model was shown."},
    )

    id: Mapped[int] = key()
    retrieval_id: Mapped[int] = reference("retrievals.id", "Its query.")
    rank: Mapped[int] = column("From 1, the best.")
    block_id: Mapped[int | None] = reference("blocks.id", "The block found.", index=True)
    example_id: Mapped[int | None] = reference("examples.id", "Or the example found.", index=True)
    score: Mapped[float] = column("BM25.")
    used: Mapped[bool] = column("Whether it was put into the prompt.")


class Segment(Base):
    __tablename__ = "segments"
    __table_args__ = {
        "comment": "The index of what traces left behind, in parts of equal size; see search/trace_index.py."
    }

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    number: Mapped[int] = column("Position in the trace's index, from 0.", primary_key=True, autoincrement=False)
    end: Mapped[int] = column("Index of the block behind its last one.")
    documents: Mapped[bytes] = column("Ids, lengths in words and types of its blocks.")
    spread: Mapped[bytes] = column("How many words stand in so many blocks, up to its end.")


class Posting(Base):
    __tablename__ = "postings"
    __table_args__ = {"comment": "Where in a segment a word stands."}

    trace_id: Mapped[int] = reference("traces.id", "Its trace.", primary_key=True)
    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    segment: Mapped[int] = column("Number of its segment.", primary_key=True, autoincrement=False)
    documents: Mapped[int] = column("Indexed blocks of the trace with the word, up to the segment's end.")
    blocks: Mapped[bytes] = column("Positions in the index and times, in pairs.")


class CorpusQueue(Base):
    __tablename__ = "corpus_queue"
    __table_args__ = {"comment": "Blocks that can be recalled and are in no segment of the corpus index yet."}

    block_id: Mapped[int] = reference("blocks.id", "The block.", primary_key=True)


class CorpusSegment(Base):
    __tablename__ = "corpus_segments"
    __table_args__ = (
        sa.Index("ix_corpus_segments_live", "level", "id", postgresql_where=sa.text("retired_at is null")),
        {"comment": "The index of all traces' blocks in parts that never change; see search/corpus_index.py."},
    )

    id: Mapped[int] = key()
    level: Mapped[int] = column("0: made of the queue; each level higher holds eight of the one below.")
    documents: Mapped[int] = column("Blocks in it.")
    words: Mapped[int] = column("Words that these have, all together.")
    created_at: Mapped[datetime.datetime] = now("When it was made.")
    retired_at: Mapped[datetime.datetime | None] = column(
        "When a larger one took its place; it is deleted once no query reads it any more."
    )
    # Arrays with a place for each block, little-endian.
    ids: Mapped[bytes] = column("Ids of the blocks, int64 each.")
    traces: Mapped[bytes] = column("Their traces, int64.")
    jobs: Mapped[bytes] = column("Their jobs, int64.")
    indexes: Mapped[bytes] = column("Their indexes in the trace, int32.")
    lengths: Mapped[bytes] = column("Their lengths in words, uint32.")
    types: Mapped[bytes] = column("Their types, uint8; see search/documents.py.")
    goods: Mapped[bytes] = column("Their raw scores, float64; NaN where none, or not legal Python, or it failed.")
    recorded: Mapped[bytes] = column("When they were recorded, seconds since the epoch, float64.")


class CorpusPosting(Base):
    __tablename__ = "corpus_postings"
    __table_args__ = {
        "comment": "Where in a segment of the corpus index a word stands. There are many: so no foreign key."
    }

    segment: Mapped[int] = column("corpus_segments.id.", primary_key=True, autoincrement=False)
    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    documents: Mapped[int] = column("Blocks of the segment with the word.", type_=sa.Integer)
    data: Mapped[bytes] = column("Which, and how often; see search/postings.py.")


class CorpusWord(Base):
    __tablename__ = "corpus_words"
    __table_args__ = {"comment": "The words of the corpus index."}

    word: Mapped[str] = column("The word, in lower case.", primary_key=True)
    documents: Mapped[int] = column("Indexed blocks with the word, those dropped since among them.")


class CorpusStatistics(Base):
    __tablename__ = "corpus_statistics"
    __table_args__ = {"comment": "What BM25 asks about all words of the corpus index. One row."}

    id: Mapped[int] = column("1.", primary_key=True, autoincrement=False)
    documents: Mapped[int] = column("Indexed blocks, those dropped since among them.")
    spread: Mapped[bytes] = column("How many words stand in so many blocks: pairs (blocks, words) of uint32.")
    average_rarity: Mapped[float] = column("Inverse document frequency, the mean over all words.")
