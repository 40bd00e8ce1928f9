"""Builds the corpus index: seals blocks of the queue into segments, and merges eight segments into one.

One process at a time does this, in short transactions (see `work`); it may be killed at any time. Queries go on
meanwhile: segments never change, and merged segments are kept for a while.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from weavegen import sql
from weavegen.database import Connection
from weavegen.search import documents
from weavegen.search.bm25 import add_frequencies, average_idf
from weavegen.search.documents import COLUMNS, RETRIEVABLE
from weavegen.search.postings import PostingLists, merge_postings, pack_histogram, unpack, unpack_histogram
from weavegen.store.releases import batches

SEGMENT_BLOCKS = (1024, 8192, 65536)
"""Blocks of a segment, by level. The words of a block are written once on each level: smaller first segments would
double this, and save a query some milliseconds of reading the queue. Positions in larger last ones would not fit
into 16 bits."""
MERGE_FACTOR = 8
"""Segments of a level that are merged into one of the next level."""
MAX_SEALED_LEVEL = 1
"""The highest level that is made directly from a long queue: the words of its texts are held in memory."""
READ_BATCH_BLOCKS = 512
"""Blocks whose texts are in memory at a time."""
COPY_BATCH_POSTINGS = 20_000
"""Postings that one COPY writes."""
RETIRED_SECONDS = 120.0
"""How long a merged segment is kept: far longer than any query that may have begun to read it."""
ADVISORY_LOCK = 0x77656169
"""Key of the advisory lock that the indexing process holds."""

PostingRow = tuple[str, int, bytes]
"""(word, document frequency, packed posting)."""


def work(conn: Connection) -> bool:
    """Make one segment. Returns False if there is none to make, or if another process is indexing.

    Needs a transaction of its own. It takes at most some seconds: a merge into a segment of the last level.
    """
    if not sql.run(conn, "store/try_advisory_lock", key=ADVISORY_LOCK).scalar_one():
        return False
    sql.run(conn, "search/delete_retired", kept=RETIRED_SECONDS)
    return merge_next(conn) or seal_next(conn)


def seal_next(conn: Connection) -> bool:
    """Make the largest possible segment from the oldest queued blocks. Returns False if there are too few."""
    count = sql.run(conn, "search/count_queued", limit=SEGMENT_BLOCKS[MAX_SEALED_LEVEL]).scalar_one()
    if (level := level_for(count)) is None:
        return False
    ids = sql.run(conn, "search/take_from_queue", size=SEGMENT_BLOCKS[level]).scalars()
    seal(conn, level, sorted(ids))
    return True


def level_for(waiting: int) -> int | None:
    """Level of the largest segment that this number of blocks fills. None if it fills none."""
    return max((level for level in range(MAX_SEALED_LEVEL + 1) if SEGMENT_BLOCKS[level] <= waiting), default=None)


def seal(conn: Connection, level: int, ids: Sequence[int]) -> None:
    """Make a segment of the blocks with these ids that still exist."""
    columns: dict[str, list[bytes]] = {name: [] for name in COLUMNS}

    def texts() -> Iterator[Counter[str]]:
        for first in range(0, len(ids), READ_BATCH_BLOCKS):
            batch = documents.read(conn, ids[first : first + READ_BATCH_BLOCKS])
            for name, values in documents.columns(batch).items():
                columns[name].append(values.tobytes())
            yield from (document.counts for document in batch)

    lists = PostingLists(texts())
    if size := len(lists.lengths):
        postings = lists.postings(lists.words)  # sorted by word, as the table's index needs them
        rows = ((word, *merge_postings([(0, posting)], size)) for word, posting in postings.items())
        write_postings(conn, insert_segment(conn, level, size, int(lists.lengths.sum()), columns), rows)
        update_statistics(conn, size, {word: posting.frequency() for word, posting in postings.items()})


def insert_segment(conn: Connection, level: int, size: int, words: int, columns: dict[str, list[bytes]]) -> int:
    """Write a segment without its postings. Returns its id."""
    values = {name: b"".join(parts) for name, parts in columns.items()}
    return int(sql.run(conn, "search/insert_segment", level=level, documents=size, words=words, **values).scalar_one())


def write_postings(conn: Connection, segment: int, rows: Iterable[PostingRow]) -> None:
    """Write a segment's postings. `rows` may use the connection between two batches."""
    for batch in batches(rows, COPY_BATCH_POSTINGS):
        statement = "copy corpus_postings (segment, word, documents, data) from stdin (format binary)"
        with conn.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int8", "text", "int4", "bytea"])
            for row in batch:
                copy.write_row((segment, *row))


def update_statistics(conn: Connection, size: int, frequencies: dict[str, int]) -> None:
    """Add `size` new texts, whose words have these document frequencies, to the statistics of all words."""
    before = sql.run(conn, "search/statistics").one()
    words = sorted(frequencies)
    rows = sql.run(conn, "search/count_words", words=words, documents=[frequencies[word] for word in words])
    old = {row.word: row.documents - frequencies[row.word] for row in rows}
    histogram = add_frequencies(unpack_histogram(before.spread), old, frequencies)
    size += before.documents
    spread, average = pack_histogram(histogram), average_idf(histogram, size)
    sql.run(conn, "search/set_statistics", documents=size, spread=spread, average_idf=average)


def merge_next(conn: Connection) -> bool:
    """Merge the oldest segments of the lowest level that has enough. Returns False if no level has."""
    row = sql.run(conn, "search/mergeable", factor=MERGE_FACTOR, last=len(SEGMENT_BLOCKS) - 1).one_or_none()
    if row is None:
        return False
    segments = row.segments[:MERGE_FACTOR]
    merge(conn, row.level + 1, segments)
    sql.run(conn, "search/retire", segments=segments)
    return True


def merge(conn: Connection, level: int, segments: Sequence[int]) -> None:
    """Make one segment from several, with their texts in the same order."""
    rows = sql.run(conn, "search/segments", segments=list(segments)).all()
    columns = {name: [getattr(row, name) for row in rows] for name in COLUMNS}
    words = sum(row.words for row in rows)
    *starts, size = itertools.accumulate((row.documents for row in rows), initial=0)
    offsets = {row.id: (start, row.documents) for row, start in zip(rows, starts, strict=True)}
    write_postings(conn, insert_segment(conn, level, size, words, columns), merged_postings(conn, offsets, size))


def merged_postings(conn: Connection, offsets: dict[int, tuple[int, int]], size: int) -> Iterator[PostingRow]:
    """The postings of several segments as those of one. `offsets`: segment -> (position of first text, size)."""
    with conn.cursor("merged", binary=True) as cursor:
        cursor.itersize = COPY_BATCH_POSTINGS
        cursor.execute(sql.text("search/postings_of_segments"), (list(offsets),))
        for word, rows in itertools.groupby(cursor, key=lambda row: row[0]):
            parts = []
            for _, segment, frequency, data in rows:
                offset, length = offsets[segment]
                parts.append((offset, unpack(data, frequency, length)))
            yield word, *merge_postings(parts, size)


def rebuild(conn: Connection, progress: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Rebuild the index from all blocks, in one transaction. Queries use the old index until it commits.

    Calls `progress` with the number of indexed blocks and of all blocks. Returns the number of all blocks. Blocks
    that were dropped since the old index was made leave the statistics.
    """
    sql.run(conn, "store/advisory_lock", key=ADVISORY_LOCK)
    sql.run(conn, "search/list_blocks", types=list(RETRIEVABLE))
    total = int(sql.run(conn, "search/count_listed").scalar_one())
    old = sql.run(conn, "search/segments_in_use").scalars()
    sql.run(conn, "search/retire", segments=old)
    sql.run(conn, "search/delete_words")
    sql.run(conn, "search/set_statistics", documents=0, spread=b"", average_idf=0.0)
    done = 0
    while (level := level_for(total - done)) is not None:
        ids = sql.run(conn, "search/listed_blocks", first=done, end=done + SEGMENT_BLOCKS[level]).scalars()
        seal(conn, level, ids)
        done += len(ids)
        while merge_next(conn):
            pass
        progress(done, total)
    # These statements lock rows of the queue: a transaction that drops such a block waits. So they come last.
    sql.run(conn, "search/unqueue", done=done)
    sql.run(conn, "search/queue_rest", done=done)
    # Again, with the current time: queries could read the old segments until now.
    sql.run(conn, "search/retire", segments=old)
    return total
