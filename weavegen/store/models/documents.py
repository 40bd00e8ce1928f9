"""What a job's agents may read: the text files of a folder, as they were when the job was enqueued."""

import datetime

from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, key, now, reference


class Document(Base):
    __tablename__ = "documents"
    __table_args__ = {"comment": "Texts that jobs were given to read, by content."}

    id: Mapped[int] = key()
    sha256: Mapped[str] = column("Hash of the text in UTF-8, hexadecimal.", unique=True)
    text: Mapped[str] = column("The text. Lines end with a line feed.")
    characters: Mapped[int] = column("Its length.")
    lines: Mapped[int] = column("Its lines; the last one need not end.")
    created_at: Mapped[datetime.datetime] = now("When a job was first given it.")


class JobDocument(Base):
    __tablename__ = "job_documents"
    __table_args__ = {"comment": "Which documents a job was given, and as what."}

    job_id: Mapped[int] = reference("jobs.id", "Its job.", primary_key=True)
    path: Mapped[str] = column("Path in the job's folder, with slashes.", primary_key=True)
    document_id: Mapped[int] = reference("documents.id", "The text.")
