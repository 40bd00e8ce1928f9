"""The tool that runs SQL, as the role that can only read."""

from typing import Any

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.kernel.lookups import Sql
from weavegen.store import reports

TIMEOUT_SECONDS = 10.0
"""Time limit of a query, here and in the other tools."""
MAX_ROWS = 50
MAX_VALUE_CHARS = 400


def sql(conn: sa.Connection, trace_id: int, call: Sql) -> str:
    """The first rows of a SELECT as a table. Raises UsageError if it fails or takes too long."""
    inner = call.query.strip().rstrip(";")
    # The query is wrapped, so that its result is text of bounded length. The first run only gives the columns.
    columns, _ = reports.select(conn, f"select * from (\n{inner}\n) as found limit 0", TIMEOUT_SECONDS, 0)
    if not columns:
        raise UsageError("the query gives no columns: select some")
    names = [f"c{number}" for number in range(len(columns))]
    values = ", ".join(f"left({name}::text, {MAX_VALUE_CHARS + 1})" for name in names)
    wrapped = f"select {values} from (\n{inner}\n) as found({', '.join(names)}) limit {MAX_ROWS + 1}"
    _, rows = reports.select(conn, wrapped, TIMEOUT_SECONDS, MAX_ROWS + 1)
    shown = [" | ".join(columns), *(" | ".join(map(cell, row)) for row in rows[:MAX_ROWS])]
    if len(rows) > MAX_ROWS:
        shown.append(f"(more than {MAX_ROWS} rows: these are the first)")
    else:
        shown.append(f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})")
    return "\n".join(shown)


def cell(value: Any) -> str:
    """A value in one line. A null differs from an empty text."""
    if value is None:
        return "null"
    text = str(value)
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[:MAX_VALUE_CHARS]}..."
    return text.replace("\\", "\\\\").replace("\n", "\\n")
