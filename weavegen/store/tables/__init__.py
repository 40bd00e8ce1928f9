"""The tables as this version has them, a .sql file for each topic. Migrations make and change the tables in a database.

Every table and column has a comment, which psql and schema browsers show to users. A comment is documentation and not
schema: rewording it needs no new revision, for every migration applies the comments that have changed.
"""

import re
from pathlib import Path

from weavegen import sql
from weavegen.database import Connection

ORDER = ("jobs", "traces", "blocks", "retrieval", "people", "tools", "campaigns", "releases", "servers")
"""The files, each after those whose tables it refers to."""
COMMENT = re.compile(r"^comment on (?:table|column) (\w+)(?:\.\"?(\w+)\"?)? is\s+((?:'[^']*'\s*)+);", re.MULTILINE)
"""A comment: table, column, and the text as literals that PostgreSQL joins."""


def text(name: str) -> str:
    """The statements that make the tables of a topic."""
    return (Path(__file__).parent / f"{name}.sql").read_text()


def names() -> list[str]:
    """The names of all tables."""
    return re.findall(r"^create table (\w+)", "".join(map(text, ORDER)), re.MULTILINE)


def drop(conn: Connection) -> None:
    """Drop all tables. No view may be left that reads them."""
    sql.run(conn, "store/drop_trigger")
    conn.execute(sql.load("store/drop_tables", names=", ".join(names())))


def comment(conn: Connection) -> int:
    """Apply the comments that differ from those in the files. Returns how many differed."""
    present = {(row.table, row.column): row.text for row in sql.run(conn, "store/comments")}
    changed = 0
    for found in COMMENT.finditer("".join(map(text, ORDER))):
        table, column, literals = found.groups()
        wanted = re.sub(r"'\n\s*'", "", literals)[1:-1].replace("''", "'")
        if present.get((table, column)) != wanted:
            conn.execute(found.group().encode())
            changed += 1
    return changed
