"""Comments on tables and columns. The models hold their text; every migration applies those that have changed.

A comment is documentation and not schema: rewording it needs no new revision.
"""

import sqlalchemy as sa

from weavegen import sql
from weavegen.store.models import METADATA


def install(conn: sa.Connection) -> int:
    """Apply the comments that differ from those of the models. Returns how many differed."""
    present = {(row.table, row.column): row.text for row in sql.run(conn, "store/comments")}
    changed = 0
    for table in METADATA.sorted_tables:
        if table.comment is not None and present.get((table.name, None)) != table.comment:
            conn.execute(sa.schema.SetTableComment(table))
            changed += 1
        for column in table.columns:
            if column.comment is not None and present.get((table.name, column.name)) != column.comment:
                conn.execute(sa.schema.SetColumnComment(column))
                changed += 1
    return changed
