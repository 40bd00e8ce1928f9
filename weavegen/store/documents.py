"""The documents that a job may read. They are written when the job is enqueued, and never changed."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.store.jobs import content_ids
from weavegen.store.releases import batches

TEXTS_PER_STATEMENT = 100


def lines(text: str) -> list[str]:
    """The lines of a text. Only a line feed ends a line; the last line may lack it."""
    parts = text.split("\n")
    return parts if parts[-1] else parts[:-1]


def save(conn: Connection, job_id: int, files: Mapping[str, str]) -> None:
    """Store texts, by path, as the documents of a job that has none yet."""
    hashes = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    # In the order of their hashes, so that two jobs that are enqueued at once can't deadlock.
    texts = sorted({digest: files[path] for path, digest in hashes.items()}.items())
    ids: dict[str, int] = {}
    for part in batches(texts, TEXTS_PER_STATEMENT):
        rows = [
            {"sha256": digest, "text": text, "characters": len(text), "lines": len(lines(text))}
            for digest, text in part
        ]
        ids |= content_ids(conn, "documents", rows)
    documents = [{"job": job_id, "path": path, "document": ids[digest]} for path, digest in hashes.items()]
    sql.run_each(conn, "store/insert_job_document", documents)


def listed(conn: Connection, job_id: int) -> Sequence[Any]:
    """Rows (path, characters, lines) of a job's documents, by path."""
    return sql.run(conn, "store/documents", job=job_id).all()


def text(conn: Connection, job_id: int, path: str) -> str | None:
    """The text of a job's document; None: it has no document with that path."""
    text: str | None = sql.run(conn, "store/document_text", job=job_id, path=path).scalar_one_or_none()
    return text


def texts(conn: Connection, job_id: int) -> Iterator[tuple[str, str]]:
    """(path, text) of each of a job's documents, by path, streamed."""
    for row in conn.stream(sql.load("store/document_texts"), {"job": job_id}, TEXTS_PER_STATEMENT):
        yield row.path, row.text
