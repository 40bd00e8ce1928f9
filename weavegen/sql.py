"""SQL in files: a query of the package PACKAGE is weavegen/PACKAGE/sql/NAME.sql, and is named for what it does.

A query has :name for a parameter. Its own text says how a value is sent: cast(:name as jsonb) takes any value that
msgspec encodes, and cast(:name as bigint[]), or a cast to another type in weavegen.database.SENT, a list of numbers.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from weavegen.database import Connection, Result, Statement

INCLUDED = re.compile(r"\{(\w+/\w+)\}")


@cache
def text(query: str) -> str:
    """The text of the query PACKAGE/NAME."""
    package, name = query.split("/", 1)
    return included((Path(__file__).parent / package / "sql" / f"{name}.sql").read_text())


def included(query: str) -> str:
    """A query's text in which {PACKAGE/NAME} stands for the text of another, such as an expression that some share."""
    return INCLUDED.sub(lambda found: text(found[1]), query)


@cache
def load(query: str, **parts: str) -> Statement:
    """The query PACKAGE/NAME. Where `parts` are given, {name} in its text stands for one of them, such as a table."""
    return Statement(text(query).format(**parts) if parts else text(query))


def run(conn: Connection, query: str, /, **parameters: Any) -> Result:
    """The result of the query PACKAGE/NAME with these parameters."""
    return conn.execute(load(query), parameters)


def run_each(conn: Connection, query: str, rows: Sequence[dict[str, Any]]) -> None:
    """Run the query PACKAGE/NAME with the parameters of each row, all in one round trip."""
    if rows:
        conn.execute_each(load(query), rows)
