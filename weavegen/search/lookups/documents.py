"""Reading in the documents of the trace's job. They are rows of the database: no path leads out of them."""

import difflib
import posixpath
import re
from collections.abc import Sequence

import sqlalchemy as sa

from weavegen.errors import UsageError
from weavegen.search.lookups.passages import passages_of
from weavegen.store import documents
from weavegen.store.documents import Listed

MOST_LISTED = 200
MOST_LINES = 2_000
"""That are read at a time."""
MOST_HITS = 20
MOST_MATCHES = 100
WIDEST = 300
"""Characters of a line that matches, at most."""


def list_documents(conn: sa.Connection, trace_id: int, /, *, folder: str = "") -> str:
    """The job's documents, or those of a folder; of very many also the folders. Raises UsageError without any."""
    inside = within(documents.listed(conn, documents.job_of(conn, trace_id)), folder)
    shown = [f"{one.path} ({one.lines} lines)" for one in inside[:MOST_LISTED]]
    if len(inside) > MOST_LISTED:
        shown.append(f"({len(inside) - MOST_LISTED} more: name one of these folders)")
        shown += [f"{name}/ ({count} documents)" for name, count in folders(inside, normal(folder)).items()]
    return "\n".join(shown)


def read_document(
    conn: sa.Connection, trace_id: int, /, *, path: str, first_line: int = 1, lines: int = 100
) -> str:
    """Numbered lines of a document. Raises UsageError where there are none."""
    job_id = documents.job_of(conn, trace_id)
    found = documents.text(conn, job_id, normal(path))
    if found is None:
        paths = [one.path for one in documents.listed(conn, job_id)]
        near = difflib.get_close_matches(normal(path)[:200], paths[:MOST_LISTED], 3, 0.5)
        hint = f"do you mean {' or '.join(near)}?" if near else "list_documents shows what there is"
        raise UsageError(f"there is no document {path[:200]!r}: {hint}")
    return numbered(found, first_line, lines)


def search_documents(conn: sa.Connection, trace_id: int, /, *, query: str, limit: int = 5) -> str:
    """Passages of the job's documents by BM25, best first. Raises UsageError where it has no documents."""
    job_id = documents.job_of(conn, trace_id)
    found = passages_of(conn, job_id).search(query, min(max(limit, 1), MOST_HITS))
    if not found:
        within(documents.listed(conn, job_id), "")
        return "no passage has any of these words"
    shown = []
    for one in found:
        at = one.passage
        text = documents.text(conn, job_id, at.path) or ""
        body = "\n".join(part[:2_000] for part in documents.lines(text)[at.first_line - 1 : at.last_line])
        shown.append(
            f"{at.path}, lines {at.first_line} to {at.last_line} (score {one.score:.2f}):\n{body.strip()}"
        )
    return "\n\n".join(shown)


GREP = sa.text(
    """
    select j.path, l.number, left(l.line, :widest) as line
    from job_documents j join documents d on d.id = j.document_id,
      unnest(string_to_array(d.text, chr(10))) with ordinality l(line, number)
    where j.job_id = :job and (:folder = '' or starts_with(j.path, :folder)) and l.line ~ :pattern
    order by j.path collate "C", l.number limit :most
    """
)


def grep_documents(conn: sa.Connection, trace_id: int, /, *, pattern: str, folder: str = "") -> str:
    """Lines of the job's documents that match. Raises UsageError without any documents there."""
    job_id = documents.job_of(conn, trace_id)
    within(documents.listed(conn, job_id), folder)
    inside = f"{normal(folder)}/" if normal(folder) else ""
    asked = {"widest": WIDEST, "job": job_id, "folder": inside, "pattern": dialect(pattern)}
    # PostgreSQL's matcher can be interrupted anywhere, also where a pattern would take for ever: see `consult`.
    rows = conn.execute(GREP, asked | {"most": MOST_MATCHES + 1}).all()
    if not rows:
        return "no line matches"
    shown = [f"{row.path}:{row.number}: {row.line}" for row in rows[:MOST_MATCHES]]
    if len(rows) > MOST_MATCHES:
        shown.append(f"(more than {MOST_MATCHES} lines match: use a narrower pattern, or name a folder)")
    return "\n".join(shown)


def dialect(pattern: str) -> str:
    r"""A pattern as PostgreSQL writes it: there `\b` is a backspace, and `\y` the edge of a word."""
    return re.sub(r"\\(.)", lambda found: {"b": r"\y", "B": r"\Y"}.get(found[1], found[0]), pattern, flags=re.S)


def normal(path: str) -> str:
    """A path as documents have it: without what a model may put before it."""
    return posixpath.normpath(f"/{path.strip()}").strip("/")


def within(all_of_them: Sequence[Listed], folder: str) -> Sequence[Listed]:
    """Those in a folder. Raises UsageError where there are none."""
    if not all_of_them:
        raise UsageError("this job has no documents: none were given when it was enqueued")
    name = normal(folder)
    inside = [one for one in all_of_them if not name or one.path.startswith(f"{name}/")]
    if not inside:
        raise UsageError(f"there is no folder {folder[:200]!r}: list_documents without a folder shows all")
    return inside


def folders(inside: Sequence[Listed], name: str) -> dict[str, int]:
    """The folders in a folder, and how many documents are in each."""
    found: dict[str, int] = {}
    prefix = f"{name}/" if name else ""
    for one in inside:
        first, slash, _ = one.path.removeprefix(prefix).partition("/")
        if slash:
            found[prefix + first] = found.get(prefix + first, 0) + 1
    return dict(list(found.items())[:MOST_LISTED])


def numbered(text: str, first_line: int, count: int) -> str:
    """Some lines of a text with their numbers, and how many follow. Raises UsageError where there are none."""
    all_lines = documents.lines(text)
    start = max(first_line, 1) - 1
    shown = all_lines[start : start + min(max(count, 1), MOST_LINES)]
    if not shown:
        raise UsageError(f"it has {len(all_lines)} lines: there is none from {first_line} on")
    left = len(all_lines) - start - len(shown)
    body = "\n".join(f"{number}: {line}" for number, line in enumerate(shown, start + 1))
    return body + (f"\n({left} more lines)" if left else "")
