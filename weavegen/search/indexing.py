"""Making the corpus index: seals what waits in the queue into segments, and merges these, eight into one.

One process at a time does so, in short transactions (see `work`), and may end anywhere. Queries go on meanwhile:
segments never change, and what was merged is kept for a while.
"""

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import sqlalchemy as sa

from weavegen.search import documents, postings
from weavegen.search.bm25 import average_rarity
from weavegen.search.documents import COLUMNS, RECALLABLE, driver_of

SIZES = (1024, 8192, 65536)
"""Blocks of a segment, by level. A block's words are written once a level: smaller first ones would double this,
to spare a query some milliseconds with the queue. Positions in larger last ones would not fit into 16 bits."""
FACTOR = 8
"""Segments of a level that are merged into one of the next."""
SEALED_AT_ONCE = 1
"""The highest level that is made straight of the queue, where that is so long: its texts' words are in memory."""
READ_AT_ONCE = 512
"""Blocks whose texts are in memory at a time."""
WRITTEN_AT_ONCE = 20_000
"""Postings that are written by one COPY."""
KEPT = 120.0
"""Seconds for which a merged segment is kept: far longer than any query that may have begun to read it."""
TURN = 0x77656169
"""Key of the advisory lock that lets one process in at a time."""

Row = tuple[str, int, bytes]
"""A posting: word, texts that hold it, packed."""


def work(conn: sa.Connection) -> bool:
    """Do one thing of what there is to do. Returns False where there is nothing, or another process is at it.

    Wants a transaction of its own. At worst it takes some seconds: a merge into a segment of the last level.
    """
    if not conn.execute(sa.text("select pg_try_advisory_xact_lock(:turn)"), {"turn": TURN}).scalar_one():
        return False
    sweep(conn)
    return merge_next(conn) or seal_next(conn)


def sweep(conn: sa.Connection) -> None:
    """Delete segments that no query reads any more."""
    gone = conn.execute(
        sa.text(
            "delete from corpus_segments where retired_at < clock_timestamp() - make_interval(secs => :kept) "
            "returning id"
        ),
        {"kept": KEPT},
    )
    drop_postings(conn, gone.scalars().all())


def drop_postings(conn: sa.Connection, segments: Sequence[int]) -> None:
    for segment in segments:
        conn.execute(sa.text("delete from corpus_postings where segment = :segment"), {"segment": segment})


# ------------------------------------------------------------------------------------------- sealing

TAKE = sa.text(
    """
    delete from corpus_queue where block_id = any(array(
      select block_id from corpus_queue order by block_id limit :size
    )) returning block_id
    """
)


def seal_next(conn: sa.Connection) -> bool:
    """Make a segment of the oldest in the queue, the largest that there is enough for."""
    most = SIZES[SEALED_AT_ONCE]
    waiting = sa.text("select count(*) from (select from corpus_queue limit :most) q")
    found = conn.execute(waiting, {"most": most}).scalar_one()
    level = level_for(found)
    if level is None:
        return False
    taken = conn.execute(TAKE, {"size": SIZES[level]}).scalars().all()
    seal(conn, level, sorted(taken))
    return True


def level_for(waiting: int) -> int | None:
    """Level of the largest segment that can be made of so many; None: there are too few for any."""
    return max((level for level in range(SEALED_AT_ONCE + 1) if SIZES[level] <= waiting), default=None)


def seal(conn: sa.Connection, level: int, ids: Sequence[int]) -> None:
    """Make a segment of these blocks, those left out that have been dropped meanwhile."""
    columns: dict[str, list[bytes]] = {name: [] for name in COLUMNS}
    found: dict[str, tuple[array[int], bytearray]] = {}
    size = total = 0
    for first in range(0, len(ids), READ_AT_ONCE):
        read = documents.read(conn, ids[first : first + READ_AT_ONCE])
        for name, values in documents.columns(read).items():
            columns[name].append(values.tobytes())
        for position, document in enumerate(read, size):
            total += document.counts.total()
            for word, times in document.counts.items():
                if (held := found.get(word)) is None:
                    held = found[word] = (array("H"), bytearray())
                held[0].append(position)
                held[1].append(min(times, postings.MOST_TIMES))
        size += len(read)
    if size:
        segment = insert(conn, level, size, total, columns)
        write(conn, segment, rows(found, size))
        count(conn, size, {word: len(times) for word, (_, times) in found.items()})


def rows(found: dict[str, tuple["array[int]", bytearray]], size: int) -> Iterator[Row]:
    """Postings in the order of their words, which is how the table's index wants them."""
    for word in sorted(found):
        positions, times = found[word]
        packed = postings.pack(np.frombuffer(positions, np.uint16), np.frombuffer(times, np.uint8), size)
        yield word, len(times), packed


def insert(conn: sa.Connection, level: int, size: int, words: int, columns: dict[str, list[bytes]]) -> int:
    """Write a segment without its postings. Returns its id."""
    names = ", ".join(COLUMNS)
    statement = sa.text(
        f"insert into corpus_segments (level, documents, words, {names}) "
        f"values (:level, :documents, :words, {', '.join(f':{name}' for name in COLUMNS)}) returning id"
    )
    values = {name: b"".join(parts) for name, parts in columns.items()}
    found = conn.execute(statement, {"level": level, "documents": size, "words": words, **values})
    return int(found.scalar_one())


def write(conn: sa.Connection, segment: int, rows: Iterable[Row]) -> None:
    """Write a segment's postings. Between two batches `rows` may use the connection."""
    driver = driver_of(conn)
    rows = iter(rows)
    while batch := list(itertools.islice(rows, WRITTEN_AT_ONCE)):
        statement = "copy corpus_postings (segment, word, documents, data) from stdin (format binary)"
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(["int8", "text", "int4", "bytea"])
            for row in batch:
                copy.write_row((segment, *row))


COUNT = sa.text(
    """
    insert into corpus_words as w (word, documents)
    select * from unnest(cast(:words as text[]), cast(:documents as bigint[]))
    on conflict (word) do update set documents = w.documents + excluded.documents returning word, documents
    """
)


def count(conn: sa.Connection, size: int, holding: dict[str, int]) -> None:
    """Take `size` new texts into the statistics of all words; `holding`: in how many of these each word stands."""
    before = conn.execute(sa.text("select documents, spread from corpus_statistics")).one()
    spread = postings.unpack_spread(before.spread)
    words = sorted(holding)
    for row in conn.execute(COUNT, {"words": words, "documents": [holding[word] for word in words]}):
        spread[row.documents] += 1
        if old := row.documents - holding[row.word]:
            spread[old] -= 1
    spread = +spread
    values = {
        "documents": before.documents + size,
        "spread": postings.pack_spread(spread),
        "average": average_rarity(spread, before.documents + size),
    }
    conn.execute(
        sa.text(
            "update corpus_statistics set documents = :documents, spread = :spread, average_rarity = :average"
        ),
        values,
    )


# ------------------------------------------------------------------------------------------- merging

FULL = sa.text(
    """
    select level, array_agg(id order by id) as segments from corpus_segments
    where retired_at is null and level < :last group by level having count(*) >= :factor order by level limit 1
    """
)


def merge_next(conn: sa.Connection) -> bool:
    """Merge the oldest segments of the lowest level that has enough of them."""
    full = conn.execute(FULL, {"factor": FACTOR, "last": len(SIZES) - 1}).one_or_none()
    if full is None:
        return False
    segments = full.segments[:FACTOR]
    merge(conn, full.level + 1, segments)
    retired = sa.text("update corpus_segments set retired_at = clock_timestamp() where id = any(:segments)")
    conn.execute(retired, {"segments": segments})
    return True


def merge(conn: sa.Connection, level: int, segments: Sequence[int]) -> None:
    """Make one segment of several, their texts in the same order. These stay as they are."""
    columns: dict[str, list[bytes]] = {name: [] for name in COLUMNS}
    offsets: dict[int, tuple[int, int]] = {}
    size = words = 0
    read = sa.text("select * from corpus_segments where id = any(:segments) order by id")
    for row in conn.execute(read, {"segments": list(segments)}):
        offsets[row.id] = (size, row.documents)
        size += row.documents
        words += row.words
        for name in COLUMNS:
            columns[name].append(getattr(row, name))
    write(conn, insert(conn, level, size, words, columns), merged(conn, offsets, size))


def merged(conn: sa.Connection, offsets: dict[int, tuple[int, int]], size: int) -> Iterator[Row]:
    """The postings of several segments as those of one; `offsets`: position of each one's first text, its size."""
    query = (
        "select word, segment, documents, data from corpus_postings where segment = any(%s) order by word, segment"
    )
    with driver_of(conn).cursor("merged", binary=True) as cursor:
        cursor.itersize = WRITTEN_AT_ONCE
        cursor.execute(query, (list(offsets),))
        for word, held in itertools.groupby(cursor, key=lambda row: row[0]):
            parts = []
            for _, segment, documents, data in held:
                offset, length = offsets[segment]
                parts.append((offset, postings.unpack(data, documents, length)))
            yield word, *postings.joined(parts, size)


# ------------------------------------------------------------------------------------------ all anew

BLOCKS = """
create temporary table indexed_anew on commit drop as
select b.id, row_number() over (order by b.id) - 1 as place from blocks b join traces t on t.id = b.trace_id
where b.type = any(:types) and b.index >= coalesce(t.fork_at, 0)
"""


def rebuild(conn: sa.Connection, progress: Callable[[int, int], None] = lambda done, of: None) -> int:
    """Make the index anew of all blocks that there are, in one transaction: queries go on with the old one.

    `progress` is told how many are done, and of how many. Returns how many there are. What was dropped since the
    old one was made is then in no statistics any more.
    """
    conn.execute(sa.text("select pg_advisory_xact_lock(:turn)"), {"turn": TURN})
    conn.execute(sa.text(BLOCKS), {"types": list(RECALLABLE)})
    of = int(conn.execute(sa.text("select count(*) from indexed_anew")).scalar_one())
    retire = "update corpus_segments set retired_at = clock_timestamp() where"
    old = conn.execute(sa.text(f"{retire} retired_at is null returning id")).scalars().all()
    conn.execute(sa.text("delete from corpus_words"))
    conn.execute(sa.text("update corpus_statistics set documents = 0, spread = '', average_rarity = 0"))
    some = sa.text("select id from indexed_anew where place >= :first and place < :end order by id")
    done = 0
    while (level := level_for(of - done)) is not None:
        ids = conn.execute(some, {"first": done, "end": done + SIZES[level]}).scalars().all()
        seal(conn, level, ids)
        done += len(ids)
        while merge_next(conn):
            pass
        progress(done, of)
    # Last, and at once: whoever drops a block that waits there waits for us.
    conn.execute(
        sa.text("delete from corpus_queue where block_id in (select id from indexed_anew where place < :done)"),
        {"done": done},
    )
    conn.execute(
        sa.text(
            "insert into corpus_queue select i.id from indexed_anew i join blocks b using (id) "
            "where place >= :done on conflict do nothing"
        ),
        {"done": done},
    )
    # Queries have read the old ones until now, whenever this began.
    conn.execute(sa.text(f"{retire} id = any(:old)"), {"old": list(old)})
    return of
