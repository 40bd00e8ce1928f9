"""Reading with SQL, as the role that can only read."""

from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.store import reports

SECONDS = 10.0
"""That a query may take, here and in the other tools."""
MOST_ROWS = 50
WIDEST = 400
"""Characters of a value, at most."""


def sql(conn: sa.Connection, trace_id: int, /, *, query: str) -> str:
    """The first rows that a SELECT gives, as a table. Raises UsageError where it fails, or takes too long."""
    inner = query.strip().rstrip(";")
    # It is wrapped, so that what comes back is text of bounded length. The first query is for the columns alone.
    columns, _ = reports.select(conn, f"select * from (\n{inner}\n) as found limit 0", SECONDS, 0)
    if not columns:
        raise UsageError("the query gives no columns: select some")
    names = [f"c{number}" for number in range(len(columns))]
    values = ", ".join(f"left({name}::text, {WIDEST + 1})" for name in names)
    wrapped = f"select {values} from (\n{inner}\n) as found({', '.join(names)}) limit {MOST_ROWS + 1}"
    _, rows = reports.select(conn, wrapped, SECONDS, MOST_ROWS + 1)
    shown = [" | ".join(columns), *(" | ".join(map(cell, row)) for row in rows[:MOST_ROWS])]
    if len(rows) > MOST_ROWS:
        shown.append(f"(more than {MOST_ROWS} rows: these are the first)")
    else:
        shown.append(f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})")
    return "\n".join(shown)


def cell(value: Any) -> str:
    """A value in one line; a null is told from an empty text."""
    if value is None:
        return "null"
    text = str(value)
    if len(text) > WIDEST:
        text = f"{text[:WIDEST]}..."
    return text.replace("\\", "\\\\").replace("\n", "\\n")
