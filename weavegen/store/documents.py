"""The documents that jobs may read: written when a job is enqueued, never changed."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from weavegen.store import models as m

DOCUMENTS, JOB_DOCUMENTS, TRACES = map(m.table, (m.Document, m.JobDocument, m.Trace))
AT_ONCE = 100
"""Texts that are sent in one statement."""


@dataclass(frozen=True)
class Listed:
    """A document, without its text."""

    path: str
    characters: int
    lines: int


def lines(text: str) -> list[str]:
    """The lines of a text, as they are counted here: only a line feed ends one, and the last need have none."""
    found = text.split("\n")
    return found if found[-1] else found[:-1]


def save(conn: sa.Connection, job_id: int, files: Mapping[str, str]) -> None:
    """Give texts, by path, to a job that has none yet."""
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    # In the order of their hashes: two jobs that are enqueued at once never wait for each other.
    texts = sorted({digest: files[path] for path, digest in hashes.items()}.items())
    ids: dict[str, int] = {}
    for start in range(0, len(texts), AT_ONCE):
        part = texts[start : start + AT_ONCE]
        rows = [
            {"sha256": digest, "text": text, "characters": len(text), "lines": len(lines(text))}
            for digest, text in part
        ]
        conn.execute(insert(DOCUMENTS).on_conflict_do_nothing(), rows)
        known = sa.select(DOCUMENTS.c.sha256, DOCUMENTS.c.id).where(
            DOCUMENTS.c.sha256.in_([digest for digest, _ in part])
        )
        ids |= {row.sha256: row.id for row in conn.execute(known)}
    given = [{"job_id": job_id, "path": path, "document_id": ids[digest]} for path, digest in hashes.items()]
    if given:
        conn.execute(sa.insert(JOB_DOCUMENTS), given)


def copy(conn: sa.Connection, from_job: int, to_job: int) -> None:
    """Let a job read what another one may read."""
    own = sa.select(sa.literal(to_job), JOB_DOCUMENTS.c.path, JOB_DOCUMENTS.c.document_id)
    conn.execute(
        insert(JOB_DOCUMENTS)
        .from_select(["job_id", "path", "document_id"], own.where(JOB_DOCUMENTS.c.job_id == from_job))
        .on_conflict_do_nothing()
    )


def job_of(conn: sa.Connection, trace_id: int) -> int:
    """The job of a trace."""
    return int(conn.execute(sa.select(TRACES.c.job_id).where(TRACES.c.id == trace_id)).scalar_one())


def listed(conn: sa.Connection, job_id: int) -> Sequence[Listed]:
    """A job's documents, by path."""
    rows = conn.execute(
        sa.select(JOB_DOCUMENTS.c.path, DOCUMENTS.c.characters, DOCUMENTS.c.lines)
        .join(DOCUMENTS, DOCUMENTS.c.id == JOB_DOCUMENTS.c.document_id)
        .where(JOB_DOCUMENTS.c.job_id == job_id)
        .order_by(sa.collate(JOB_DOCUMENTS.c.path, "C"))
    )
    return [Listed(*row) for row in rows]


def text(conn: sa.Connection, job_id: int, path: str) -> str | None:
    """A job's document; None: it has none of that path."""
    found = conn.execute(
        sa.select(DOCUMENTS.c.text)
        .join(JOB_DOCUMENTS, DOCUMENTS.c.id == JOB_DOCUMENTS.c.document_id)
        .where(JOB_DOCUMENTS.c.job_id == job_id, JOB_DOCUMENTS.c.path == path)
    )
    return found.scalar_one_or_none()


def texts(conn: sa.Connection, job_id: int) -> Iterator[tuple[str, str]]:
    """(path, text) of each of a job's documents, by path, streamed."""
    query = (
        sa.select(JOB_DOCUMENTS.c.path, DOCUMENTS.c.text)
        .join(DOCUMENTS, DOCUMENTS.c.id == JOB_DOCUMENTS.c.document_id)
        .where(JOB_DOCUMENTS.c.job_id == job_id)
        .order_by(sa.collate(JOB_DOCUMENTS.c.path, "C"))
    )
    for row in conn.execute(query, execution_options={"yield_per": AT_ONCE}):
        yield row.path, row.text
