"""What is made from the traces: views, and releases, which can be written again byte for byte."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, json, key, now, reference


class View(Base):
    __tablename__ = "views"
    __table_args__ = {"comment": "The views that weavegen has made in this database (store/views/)."}

    name: Mapped[str] = column("Name of the view.", primary_key=True)
    position: Mapped[int] = column("Position in the order in which views are made.")
    sha256: Mapped[str] = column("Hash of the text that it was made from, hexadecimal.")
    as_of: Mapped[datetime.datetime] = now("When it was made, or last refreshed (weavegen refresh).")
    seconds: Mapped[float] = column("Duration of the last refresh of a materialised view.", server_default="0")


class Release(Base):
    __tablename__ = "releases"
    __table_args__ = {"comment": "Snapshots that `weavegen release` froze."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("Name that the user gave it.", unique=True)
    format: Mapped[str] = column("Format of the export.")
    condition: Mapped[str | None] = column("The SQL condition on the format's view; null: all rows.")
    row_limit: Mapped[int | None] = column("Highest number of rows of the view; null: no limit.")
    options: Mapped[dict[str, Any]] = json("Options of the format.")
    splits: Mapped[list[Any]] = json("Names and shares of the splits, in order.")
    shard_bytes: Mapped[int] = column("Bytes after which a new file begins.")
    threshold: Mapped[float | None] = column("Similarity of removed near-duplicates; null: all rows were kept.")
    key_width: Mapped[int] = column("Count of numbers in a key of the view.")
    rows: Mapped[int] = column("Rows of the view in the release.")
    facts: Mapped[dict[str, Any]] = json("Facts of the manifest: models, rubrics, settings, contamination.")
    version: Mapped[str] = column("Version of weavegen that made it.")
    code_sha256: Mapped[str] = column("Hash of weavegen's own files, hexadecimal.")
    manifest_sha256: Mapped[str] = column("Hash of manifest.json, hexadecimal.")
    files: Mapped[dict[str, Any]] = json("Bytes and hash of each file, by name.")
    created_at: Mapped[datetime.datetime] = now("When it was made.")


class ReleaseKeys(Base):
    __tablename__ = "release_keys"
    __table_args__ = (
        sa.CheckConstraint("kind in ('kept', 'removed')", name="kind"),
        {"comment": "The rows of releases, by the key of the format's view, in parts of bounded length."},
    )

    release_id: Mapped[int] = reference("releases.id", "Its release.", primary_key=True)
    kind: Mapped[str] = column("kept, or removed as near-duplicates.", primary_key=True)
    part: Mapped[int] = column("Position of the part, from 0.", primary_key=True, autoincrement=False)
    keys: Mapped[list[int]] = column(
        "Keys one after the other. A removed row has its own key and the key of the row that it resembles.",
        type_=Numbers(sa.BigInteger),
    )
