"""Releases in Postgres: their rows, and what is recorded about the traces that they come from."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import required

KEYS_PER_PART = 100_000
"""Numbers in one part of a release's keys."""
TRACES_PER_QUERY = 500
T = TypeVar("T")
Key = tuple[int, ...]
"""Identifies a row of a format's view."""


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def about(conn: Connection, query: str, traces: Iterable[int]) -> Iterator[Any]:
    """The rows of a query with the parameter :traces, which runs once for each TRACES_PER_QUERY of these traces."""
    for batch in batches(traces, TRACES_PER_QUERY):
        yield from sql.run(conn, query, traces=batch)


TEXTS = {
    ("chosen_id", "rejected_id"): "release_texts_of_candidates",
    ("candidate_id",): "release_texts_of_candidates",
    ("block_id",): "release_texts_of_blocks",
    ("step_id",): "release_texts_of_steps",
    ("ending",): "release_texts_of_ticks",
}
"""Columns of a view's key that say which texts its rows hold, and the statement that reads these. The first entry
whose columns are all in the key applies; without one, a row holds the text of its trace."""


def text_columns(key: Sequence[str]) -> tuple[str, ...]:
    """The columns of a view's key, out of TEXTS, that say which texts its rows hold; (): those of its trace."""
    return next((columns for columns in TEXTS if set(columns) <= set(key)), ())


def texts(conn: Connection, columns: tuple[str, ...], trace_id: int) -> dict[int, Any]:
    """Rows (reward, text) of what the model wrote in a trace, by the value of one of `columns`."""
    statement = sql.load(f"store/{TEXTS.get(columns, 'release_text_of_trace')}")
    return {row.key[0]: row for row in conn.execute(statement, {"trace": trace_id})}


def questions(conn: Connection, view: str, key: Sequence[str], trace_id: int) -> dict[Key, tuple[str, str]]:
    """Question and text of each row of a view about questions, by key."""
    query = sql.load("store/release_questions", key=", ".join(key), view=view)
    return {tuple(row[:-2]): (row[-2], row[-1]) for row in conn.execute(query, {"trace": trace_id})}


def save(conn: Connection, kept: Iterable[Key], removed: Iterable[Key], **values: Any) -> int:
    """Store a release. Returns its id. `removed`: keys of near-duplicates, each followed by that of the kept row."""
    release = int(sql.run(conn, "store/insert_release", **values).scalar_one())
    for kind, keys, width in (("kept", kept, values["key_width"]), ("removed", removed, 2 * values["key_width"])):
        for part, batch in enumerate(batches(keys, KEYS_PER_PART // width)):
            numbers = itertools.chain(*batch)
            sql.run(conn, "store/save_release_keys", release=release, kind=kind, part=part, keys=numbers)
    return release


def load(conn: Connection, name: str) -> Any:
    """A release's row. Raises UsageError if there is no such release."""
    row = sql.run(conn, "store/release", name=name).one_or_none()
    return required(row, f"there is no release {name!r}: `weavegen release --list` lists them")


def keys(conn: Connection, release: Any) -> Iterator[Key]:
    """The keys of the rows of a release, in order; one part is read at a time."""
    for part in sql.run(conn, "store/parts_of_release", release=release.id).scalars():
        numbers = sql.run(conn, "store/release_keys", release=release.id, part=part).scalar_one()
        width = release.key_width
        yield from (tuple(numbers[start : start + width]) for start in range(0, len(numbers), width))
