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
from psycopg.types.json import Jsonb

CAST = re.compile(r"cast\(:(\w+) as ([a-z ]+(?:\[\])?)\)")


def json(value: Any) -> Jsonb:
    """A value as JSON. psycopg encodes it when it sends it: raises UnicodeEncodeError then, as for any text."""
    return Jsonb(value, dumps=msgspec.json.encode)


def array_text(numbers: Iterable[float | None]) -> str:
    """A PostgreSQL array as text, for psycopg is slow with a million numbers. NaN and None become null."""
    return f"{{{msgspec.json.encode(list(numbers))[1:-1].decode()}}}"


class Sent(sa.types.UserDefinedType[Any]):
    """A parameter that psycopg gets as `encode` returns it. None is SQL's null."""

    cache_ok = True

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.encode = encode

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        return lambda value: None if value is None else self.encode(value)


SENT = {"jsonb": Sent(json)} | dict.fromkeys(
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
