"""What is made from the traces: views, and releases, which can be written again byte for byte."""

import sqlalchemy as sa

from weavegen.store.models.columns import Numbers, column, json, now, reference, table

VIEWS = table(
    "views",
    "The views that weavegen has made in this database (store/views/).",
    column("name", str, "Name of the view.", primary_key=True),
    column("position", int, "Position in the order in which views are made."),
    column("sha256", str, "Hash of the text that it was made from, hexadecimal."),
    now("as_of", "When it was made, or last refreshed (weavegen refresh)."),
    column("seconds", float, "Duration of the last refresh of a materialised view.", server_default="0"),
)

RELEASES = table(
    "releases",
    "Snapshots that `weavegen release` froze.",
    column("name", str, "Name that the user gave it.", unique=True),
    column("format", str, "Format of the export."),
    column("condition", str | None, "The SQL condition on the format's view; null: all rows."),
    column("row_limit", int | None, "Highest number of rows of the view; null: no limit."),
    json("options", "Options of the format."),
    json("splits", "Names and shares of the splits, in order."),
    column("shard_bytes", int, "Bytes after which a new file begins."),
    column("threshold", float | None, "Similarity of removed near-duplicates; null: all rows were kept."),
    column("key_width", int, "Count of numbers in a key of the view."),
    column("rows", int, "Rows of the view in the release."),
    json("facts", "Facts of the manifest: models, rubrics, settings, contamination."),
    column("version", str, "Version of weavegen that made it."),
    column("code_sha256", str, "Hash of weavegen's own files, hexadecimal."),
    column("manifest_sha256", str, "Hash of manifest.json, hexadecimal."),
    json("files", "Bytes and hash of each file, by name."),
    now("created_at", "When it was made."),
)

KEYS = table(
    "release_keys",
    "The rows of releases, by the key of the format's view, in parts of bounded length.",
    reference("release_id", "Its release.", primary_key=True),
    column("kind", str, "kept, or removed as near-duplicates.", primary_key=True),
    column("part", int, "Position of the part, from 0.", primary_key=True, autoincrement=False),
    column(
        "keys",
        Numbers(sa.BigInteger),
        "Keys one after the other. A removed row has its own key and the key of the row that it resembles.",
    ),
    sa.CheckConstraint("kind in ('kept', 'removed')", name="kind"),
)
