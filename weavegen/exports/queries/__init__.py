"""The queries of the formats: a file each."""

from functools import cache
from pathlib import Path

import sqlalchemy as sa


@cache
def query(name: str) -> sa.TextClause:
    """The query in NAME.sql."""
    return sa.text((Path(__file__).parent / f"{name}.sql").read_text())
