"""Tools that only read, for agents: the corpus, the database, the documents of a job.

An agent asks with a `LookUp` step, a worker answers. That nothing can be changed does not rest on what a model is
told: there are no other functions, each runs in a read-only transaction that is cut off after some seconds, SQL
runs as the reader's role (store/reports.py), and documents are rows, not files.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec
import psycopg
import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import LookUpResult
from weavegen.search.lookups import library
from weavegen.search.lookups.corpus import read_blocks, search_corpus
from weavegen.search.lookups.database import SECONDS, sql
from weavegen.search.lookups.documents import grep_documents, list_documents, read_document, search_documents

RESEARCH: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        search_corpus, read_blocks, sql, list_documents, search_documents, grep_documents, read_document
    )
}  # fmt: skip
"""What a researcher may use: agents/lookups.py tells its model of these."""
TOOLS = RESEARCH | library.TOOLS
"""All that a `LookUp` step may name."""
MOST = 200_000
"""Characters of an answer. An agent's program shortens it further to what its model is to read."""


def consult(db: sa.Engine, trace_id: int, tool: str, arguments: Mapping[str, Any]) -> LookUpResult:
    """What a tool says to a trace. Wrong names and arguments, and failures, are answers.

    Raises SQLAlchemy's errors where the database is away: then the step is tried again.
    """
    if tool not in TOOLS:
        return LookUpResult(success=False, output=f"there is no tool {tool!r}: choose one of {', '.join(TOOLS)}")
    function = TOOLS[tool]
    try:
        given = checked(function, arguments)
        with db.connect() as conn:
            conn.execute(sa.text("set transaction read only"))
            conn.execute(sa.text(f"set local statement_timeout = {int(SECONDS * 1000)}"))
            output = function(conn, trace_id, **given)
    except (UsageError, msgspec.ValidationError) as error:
        return LookUpResult(success=False, output=f"{tool}: {error}")
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated or not isinstance(error.orig, ANSWERS):
            raise
        return LookUpResult(success=False, output=f"{tool}: {' '.join(str(error.orig).split())[:1000]}")
    return LookUpResult(output=output if len(output) <= MOST else f"{output[:MOST]}\n... (cut off here)")


ANSWERS = (
    psycopg.errors.QueryCanceled, psycopg.DataError, psycopg.ProgrammingError, psycopg.errors.ProgramLimitExceeded
)  # fmt: skip
"""What a query meets that is at fault itself: it takes too long, its pattern is none, a number is too large."""


def checked(function: Callable[..., str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a tool, as their types say. Raises UsageError or msgspec.ValidationError."""
    check_json(arguments, "arguments")
    try:
        inspect.signature(function).bind(None, 0, **arguments)
    except TypeError as error:
        raise UsageError(str(error)) from None
    hints = get_type_hints(function)
    return {name: msgspec.convert(value, hints[name]) for name, value in arguments.items()}
