"""Tools that read the documents of the trace's job. Documents are rows of the database: no path leads to files."""

import difflib
import posixpath
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.errors import UsageError
from weavegen.search.passages import passages_of
from weavegen.store import documents
from weavegen.store.traces import job_of

MAX_LISTED = 200
MAX_LINES = 2_000
"""How many lines one call reads at most."""
MAX_HITS = 20
MAX_MATCHES = 100
MAX_MATCH_CHARS = 300
"""Longer lines that match are cut."""
MAX_PASSAGE_LINE_CHARS = 2_000


def list_documents(conn: Connection, trace_id: int, *, folder: str) -> str:
    """The documents of the job or of a folder, and the folders if there are many. Raises UsageError if none."""
    inside = documents_in(documents.listed(conn, job_of(conn, trace_id)), folder)
    shown = [f"{document.path} ({document.lines} lines)" for document in inside[:MAX_LISTED]]
    if len(inside) > MAX_LISTED:
        folders = subfolders(inside, normal(folder))
        shown.append(f"({len(inside) - MAX_LISTED} more: name one of these folders)")
        shown += [f"{name}/ ({count} documents)" for name, count in list(folders.items())[:MAX_LISTED]]
    return "\n".join(shown)


def read_document(conn: Connection, trace_id: int, *, path: str, first_line: int, lines: int) -> str:
    """Lines of a document with their numbers, and how many follow. Raises UsageError if there are none."""
    job_id = job_of(conn, trace_id)
    text = documents.text(conn, job_id, normal(path))
    if text is None:
        paths = [document.path for document in documents.listed(conn, job_id)]
        near = difflib.get_close_matches(normal(path)[:200], paths[:MAX_LISTED], 3, 0.5)
        hint = f"do you mean {' or '.join(near)}?" if near else "list_documents shows what there is"
        raise UsageError(f"there is no document {path[:200]!r}: {hint}")
    all_lines = documents.lines(text)
    start = max(first_line, 1) - 1
    shown = all_lines[start : start + min(max(lines, 1), MAX_LINES)]
    if not shown:
        raise UsageError(f"it has {len(all_lines)} lines: there is none from {first_line} on")
    left = len(all_lines) - start - len(shown)
    body = "\n".join(f"{number}: {line}" for number, line in enumerate(shown, start + 1))
    return body + (f"\n({left} more lines)" if left else "")


def search_documents(conn: Connection, trace_id: int, *, query: str, limit: int) -> str:
    """Passages of the job's documents by BM25, best first. Raises UsageError if the job has no documents."""
    job_id = job_of(conn, trace_id)
    hits = passages_of(conn, job_id).search(query, min(max(limit, 1), MAX_HITS))
    if not hits:
        documents_in(documents.listed(conn, job_id), "")
        return "no passage has any of these words"
    shown = []
    for (path, first, last), score in hits:
        lines = documents.lines(documents.text(conn, job_id, path) or "")[first - 1 : last]
        body = "\n".join(line[:MAX_PASSAGE_LINE_CHARS] for line in lines)
        shown.append(f"{path}, lines {first} to {last} (score {score:.2f}):\n{body.strip()}")
    return "\n\n".join(shown)


def grep_documents(conn: Connection, trace_id: int, *, pattern: str, folder: str) -> str:
    """Lines of the job's documents that match. Raises UsageError if there are no documents."""
    job_id = job_of(conn, trace_id)
    documents_in(documents.listed(conn, job_id), folder)
    name = normal(folder)
    # PostgreSQL's matcher can be interrupted at any time, also where a pattern would take for ever: see `consult`.
    asked = {"job": job_id, "folder": f"{name}/" if name else "", "pattern": postgres_pattern(pattern)}
    rows = sql.run(conn, "search/grep", **asked, max_chars=MAX_MATCH_CHARS, max_matches=MAX_MATCHES + 1).all()
    if not rows:
        return "no line matches"
    shown = [f"{row.path}:{row.number}: {row.line}" for row in rows[:MAX_MATCHES]]
    if len(rows) > MAX_MATCHES:
        shown.append(f"(more than {MAX_MATCHES} lines match: use a narrower pattern, or name a folder)")
    return "\n".join(shown)


def postgres_pattern(pattern: str) -> str:
    r"""A Python pattern in PostgreSQL's dialect: there `\b` is a backspace, and `\y` is the edge of a word."""
    return re.sub(r"\\(.)", lambda match: {"b": r"\y", "B": r"\Y"}.get(match[1], match[0]), pattern, flags=re.S)


def normal(path: str) -> str:
    """A path in the form that documents have, without `/`, `./` and `..` that a model may write."""
    return posixpath.normpath(f"/{path.strip()}").strip("/")


def documents_in(listed: Sequence[Any], folder: str) -> Sequence[Any]:
    """The documents in a folder. Raises UsageError if there are none."""
    if not listed:
        raise UsageError("this job has no documents: none were given when it was enqueued")
    name = normal(folder)
    inside = [document for document in listed if not name or document.path.startswith(f"{name}/")]
    if not inside:
        raise UsageError(f"there is no folder {folder[:200]!r}: list_documents without a folder shows all")
    return inside


def subfolders(inside: Sequence[Any], folder: str) -> Counter[str]:
    """The folders in a folder, with their numbers of documents."""
    prefix = f"{folder}/" if folder else ""
    parts = (document.path.removeprefix(prefix).partition("/") for document in inside)
    return Counter(prefix + name for name, slash, _ in parts if slash)
