"""Releases: exports that can be written again, byte for byte."""

import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, Numbers, column, json, key, now, reference


class Release(Base):
    __tablename__ = "releases"
    __table_args__ = {"comment": "Snapshots that `weavegen release` froze: what is in them, and what made them."}

    id: Mapped[int] = key()
    name: Mapped[str] = column("What the user called it.", unique=True)
    format: Mapped[str] = column("Format of the export.")
    condition: Mapped[str | None] = column("The SQL condition over the format's view; null: all rows.")
    row_limit: Mapped[int | None] = column("Rows of the view at most; null: no limit.")
    options: Mapped[dict[str, Any]] = json("Options of the format.")
    splits: Mapped[list[Any]] = json("Names and shares of the splits, in order.")
    shard_bytes: Mapped[int] = column("A new file began after so many bytes.")
    threshold: Mapped[float | None] = column(
        "Similarity of near-duplicates, which were removed; null: all were kept."
    )
    key_width: Mapped[int] = column("Numbers that identify a row of the view.")
    rows: Mapped[int] = column("Rows of the view that are in it.")
    facts: Mapped[dict[str, Any]] = json("What the manifest says of it: models, rubrics, settings, contamination.")
    version: Mapped[str] = column("Version of weavegen.")
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
    kind: Mapped[str] = column("kept; removed: a near-duplicate.", primary_key=True)
    part: Mapped[int] = column("Position of the part, from 0.", primary_key=True, autoincrement=False)
    keys: Mapped[list[int]] = column(
        "Keys one after the other; of a removed row its own and that of the row that it is like.",
        type_=Numbers(sa.BigInteger),
    )
