"""Read-only tools for agents: the corpus, the database, a job's documents, the tool library.

An agent yields a `LookUp` step; a worker runs the tool. prompts/tools.toml declares the tools. They can't change
anything, whatever the model writes: there are no other functions, each runs in a read-only transaction whose
statements have a time limit, SQL runs as the reader's role (store/reports.py), and documents are rows and not files.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import psycopg

from weavegen import sql
from weavegen.database import Database
from weavegen.errors import UsageError
from weavegen.kernel import prompts
from weavegen.kernel.settings import check_json
from weavegen.kernel.steps import LookUpResult
from weavegen.search.lookups import corpus, documents, library
from weavegen.search.lookups.corpus import TIMEOUT_SECONDS
from weavegen.store import reports

TOOLS: dict[str, Callable[..., str]] = {
    tool.__name__: tool
    for tool in (
        documents.list_documents, documents.search_documents, documents.grep_documents, documents.read_document,
        corpus.search_corpus, corpus.read_blocks, corpus.sql,
        library.read_request, library.past_requests, library.preferences, library.find_tools, library.read_tool,
    )
}  # fmt: skip
"""Each function takes a connection, the id of the trace that asks, and by name the arguments that are declared."""
MAX_ANSWER_CHARS = 200_000
"""Longer answers are cut off. An agent's program shortens them further for its model."""
QUERY_FAULTS = (
    psycopg.errors.QueryCanceled, psycopg.DataError, psycopg.ProgrammingError, psycopg.errors.ProgramLimitExceeded
)  # fmt: skip
"""Errors that the arguments cause: a timeout, an invalid pattern, a number that is too large."""


def consult(db: Database, trace_id: int, tool: str, arguments: Mapping[str, Any]) -> LookUpResult:
    """Run a tool for a trace. What is wrong in its call is a result without success. Raises psycopg.Error."""
    if tool not in TOOLS:
        return LookUpResult(success=False, output=f"there is no tool {tool!r}: choose one of {', '.join(TOOLS)}")
    try:
        check_json(arguments, "arguments")
        call = msgspec.structs.asdict(msgspec.convert(arguments, prompts.arguments(tool)))
        with db.connect() as conn:
            sql.run(conn, "store/only_read")
            reports.limit_time(conn, TIMEOUT_SECONDS)
            output = TOOLS[tool](conn, trace_id, **call)
    except (UsageError, msgspec.ValidationError) as error:
        return LookUpResult(success=False, output=f"{tool}: {error}")
    except QUERY_FAULTS as error:
        return LookUpResult(success=False, output=f"{tool}: {' '.join(str(error).split())[:1000]}")
    if len(output) > MAX_ANSWER_CHARS:
        output = f"{output[:MAX_ANSWER_CHARS]}\n... (cut off here)"
    return LookUpResult(output=output)
