"""The queries of queries.sql, by name."""

import re
from functools import cache
from pathlib import Path

import sqlalchemy as sa

_parts = re.split(r"^-- name: (\w+)\n", (Path(__file__).parent / "queries.sql").read_text(), flags=re.MULTILINE)
SQL = dict(zip(_parts[1::2], _parts[2::2], strict=True))
"""For psycopg itself, whose parameters have another form than SQLAlchemy's."""


@cache
def sql(name: str) -> sa.TextClause:
    """A query for SQLAlchemy."""
    return sa.text(SQL[name])
