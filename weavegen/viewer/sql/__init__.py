"""The viewer's queries: one .sql file each, named for what it selects."""

from functools import cache
from pathlib import Path

import sqlalchemy as sa


@cache
def load(name: str) -> sa.TextClause:
    """The query in NAME.sql, with :name for a parameter."""
    return sa.text((Path(__file__).parent / f"{name}.sql").read_text())
