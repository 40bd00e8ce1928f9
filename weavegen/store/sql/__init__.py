"""SQL statements of several lines: one .sql file each, named for what it does."""

from functools import cache
from pathlib import Path

import sqlalchemy as sa


@cache
def text(name: str) -> str:
    """The statement in NAME.sql, for statements that are put together of several texts."""
    return (Path(__file__).parent / f"{name}.sql").read_text()


@cache
def load(name: str) -> sa.TextClause:
    """The statement in NAME.sql, with :name for a parameter."""
    return sa.text(text(name))
