"""SQL in files: a query of the room ROOM is weavegen/ROOM/sql/NAME.sql, and is named for what it does.

A query has :name for a parameter. Its own text says how a value is sent: cast(:name as jsonb) takes any value that
msgspec encodes, and cast(:name as bigint[]), or a cast to another type in SENT, takes a list of numbers.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

CAST = re.compile(r"cast\(:(\w+) as ([a-z ]+(?:\[\])?)\)")


def json_text(value: Any) -> str:
    """A value as JSON."""
    return msgspec.json.encode(value).decode()


def array_text(numbers: Iterable[float | None]) -> str:
    """A PostgreSQL array as text, for psycopg is slow with a million numbers. NaN and None become null."""
    return f"{{{json_text(list(numbers))[1:-1]}}}"


class Sent(sa.types.TypeDecorator[Any]):
    """A parameter that is sent as text, which PostgreSQL casts. None is sent as SQL's null."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, encode: Callable[[Any], str]) -> None:
        super().__init__()
        self.encode = encode

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        return None if value is None else self.encode(value)


SENT = {"jsonb": Sent(json_text)} | dict.fromkeys(
    ("integer[]", "bigint[]", "real[]", "double precision[]"), Sent(array_text)
)
"""Types of parameters that psycopg does not send as they are."""


@cache
def text(query: str) -> str:
    """The text of the query ROOM/NAME."""
    room, name = query.split("/", 1)
    return (Path(__file__).parent / room / "sql" / f"{name}.sql").read_text()


def statement(text: str) -> sa.TextClause:
    """A statement that was put together from the texts of queries."""
    casts = dict(CAST.findall(text))
    return sa.text(text).bindparams(*(sa.bindparam(name, type_=SENT[to]) for name, to in casts.items() if to in SENT))


@cache
def load(query: str, **parts: str) -> sa.TextClause:
    """The query ROOM/NAME. Where `parts` are given, {name} in its text stands for one of them, such as a table."""
    return statement(text(query).format(**parts) if parts else text(query))


def run(conn: sa.Connection, query: str, /, **parameters: Any) -> "sa.CursorResult[*tuple[Any, ...]]":
    """The result of the query ROOM/NAME with these parameters."""
    return conn.execute(load(query), parameters)


def run_each(conn: sa.Connection, query: str, rows: Sequence[dict[str, Any]]) -> None:
    """Run the query ROOM/NAME with the parameters of each row, all in one round trip."""
    if rows:
        conn.execute(load(query), rows)
