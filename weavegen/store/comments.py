"""Comments on tables and columns: the models hold their text, and every migration applies what has changed.

A comment is documentation, so it is no migration of its own: a reworded comment needs no new revision.
"""

import sqlalchemy as sa

from weavegen.store.models import Base

PRESENT = """
    select c.relname as table, a.attname as column, d.description as text
    from pg_description d
    join pg_class c on c.oid = d.objoid
    left join pg_attribute a on a.attrelid = c.oid and a.attnum = d.objsubid and d.objsubid > 0
    where d.classoid = 'pg_class'::regclass and c.relnamespace = current_schema()::regnamespace
"""


def install(conn: sa.Connection) -> int:
    """Apply the comments that differ from those of the models. Returns how many differed."""
    present = {(row.table, row.column): row.text for row in conn.execute(sa.text(PRESENT))}
    changed = 0
    for table in Base.metadata.sorted_tables:
        if table.comment is not None and present.get((table.name, None)) != table.comment:
            conn.execute(sa.schema.SetTableComment(table))
            changed += 1
        for column in table.columns:
            if column.comment is not None and present.get((table.name, column.name)) != column.comment:
                conn.execute(sa.schema.SetColumnComment(column))
                changed += 1
    return changed
