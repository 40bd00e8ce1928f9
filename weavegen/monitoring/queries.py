"""The SQL files of this package: each query begins with a line `-- name: NAME`."""

import re
from pathlib import Path

import sqlalchemy as sa


def load(file: str) -> dict[str, sa.TextClause]:
    """The queries of FILE.sql by name."""
    text = (Path(__file__).parent / f"{file}.sql").read_text()
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sa.text(query) for name, query in zip(parts[::2], parts[1::2], strict=True)}
