"""SQL in files: a query of the room ROOM is weavegen/ROOM/sql/NAME.sql, and is named for what it does."""

from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa


@cache
def text(query: str) -> str:
    """The text of the query ROOM/NAME."""
    room, name = query.split("/", 1)
    return (Path(__file__).parent / room / "sql" / f"{name}.sql").read_text()


@cache
def load(query: str) -> sa.TextClause:
    """The query ROOM/NAME, with :name for a parameter."""
    return sa.text(text(query))


def run(conn: sa.Connection, query: str, /, **parameters: Any) -> "sa.CursorResult[*tuple[Any, ...]]":
    """The result of the query ROOM/NAME with these parameters."""
    return conn.execute(load(query), parameters)
