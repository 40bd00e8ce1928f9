"""The files of a split: shards of rows (Parquet or JSON lines), or files for each trace.

Memory is constant, and equal rows give equal bytes.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weavegen.exports.format import FileFormat, Format, Key, RowFormat, Source

ROW_GROUP_CHARS = 16 << 20
"""Size of a row group. An export holds two row groups of each split in memory."""
ROW_GROUP_ROWS = 20_000
ZSTD_LEVEL = 3
"""At this level the window covers the repetition between prompts of a trace; higher levels save little."""
SHORT_TEXTS = frozenset({"job", "agent", "model", "bootstrap", "trace_status", "type", "subagent", "kind", "source"})
"""Columns of text with few distinct values."""


class TraceFiles:
    """The files of each trace. A trace counts as one row."""

    def __init__(self, folder: Path, format: FileFormat) -> None:
        self.rows = self.text_bytes = 0
        """Traces with files so far, and the size of their text."""
        self._folder, self._format = folder, format
        self._paths: list[Path] = []

    def add(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        """Write the files of a trace."""
        before = len(self._paths)
        for name, parts in self._format.files(source, trace):
            self._paths.append(self._folder / name)
            self._paths[-1].parent.mkdir(parents=True, exist_ok=True)
            with self._paths[-1].open("x", encoding="utf-8") as file:
                for text in parts:
                    file.write(text)
                    self.text_bytes += len(text)
        self.rows += len(self._paths) > before

    def close(self) -> list[Path]:
        """The paths of all files in order."""
        return self._paths

    def abandon(self) -> None:
        """Does nothing: no file is open."""


class Shards:
    """Shards of rows, one after the other. They are named `SPLIT-00000-of-00002.SUFFIX` in the end.

    A thread writes a group of rows while the next one is collected from the database; at most two are in memory. In
    Parquet, with zstd, each is a row group. JSON has one object per line.
    """

    def __init__(self, folder: Path, split: str, format: RowFormat, shard_bytes: int) -> None:
        self.rows = self.text_bytes = 0
        """Rows so far, and about the size of their text before compression."""
        self._folder, self._split, self._format, self._shard_bytes = folder, split, format, shard_bytes
        self._json = format.layout == "jsonl"
        self._paths: list[Path] = []
        self._file: IO[bytes] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._group: list[Any] = []
        """Rows; for JSON, their lines."""
        self._group_chars = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None

    def add(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        """Write the rows of a trace."""
        # The bytes of JSON are known, so that a shard ends with the row that fills it.
        most = min(ROW_GROUP_CHARS, self._shard_bytes) if self._json else ROW_GROUP_CHARS
        for row in self._format.rows(source, trace, keys):
            line = msgspec.json.encode(row) if self._json else b""
            chars = len(line) or sum(map(size, row.values()))
            self._group.append(line or row)
            self._group_chars += chars
            self.text_bytes += chars
            self.rows += 1
            if self._group_chars >= most or len(self._group) >= ROW_GROUP_ROWS:
                self._flush()

    def _flush(self) -> None:
        """Have the thread write the collected group after the previous one. Raises that one's error."""
        if self._writing is not None:
            self._writing.result()
        self._writing = self._thread.submit(self._write_group, self._group)
        self._group, self._group_chars = [], 0

    def _write_group(self, group: list[Any]) -> None:
        if self._file is None:
            self._paths.append(self._folder / f"{self._split}-{len(self._paths):05d}.draft")
            self._file = self._paths[-1].open("xb")
            self._writer = None if self._json else parquet_writer(self._file, self._format.schema)
        if self._writer is None:
            self._file.writelines(line + b"\n" for line in group)
        else:
            fields = self._format.schema
            columns = [pa.array([row[field.name] for row in group], type=field.type) for field in fields]
            batch = pa.RecordBatch.from_arrays(columns, schema=fields)
            self._writer.write_batch(batch, row_group_size=batch.num_rows)
        if self._file.tell() >= self._shard_bytes:
            self._end_shard()

    def _end_shard(self) -> None:
        """Close the shard. `new_folder` writes it to the disk."""
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.close()
        self._writer = self._file = None

    def close(self) -> list[Path]:
        """Finish all shards and return their paths in order."""
        if self._group:
            self._flush()
        if self._writing is not None:
            self._writing.result()
        self._thread.shutdown()
        self._end_shard()
        suffix = "jsonl" if self._json else "parquet"
        name = f"{self._split}-{{:05d}}-of-{len(self._paths):05d}.{suffix}"
        return [path.rename(self._folder / name.format(number)) for number, path in enumerate(self._paths)]

    def abandon(self) -> None:
        """Close what is open. The caller removes the files."""
        self._thread.shutdown()
        if self._writer is not None:
            self._writer.is_open = False  # otherwise its finaliser would write to the closed file
        if self._file is not None:
            with contextlib.suppress(OSError):  # the disk has no room for the buffered part, which nobody needs
                self._file.close()


def split_writer(format: Format, folder: Path, split: str, shard_bytes: int) -> TraceFiles | Shards:
    """The writer of a split's files below `folder`."""
    place = folder / ("data" if isinstance(format, RowFormat) else split)
    place.mkdir(exist_ok=True)
    if isinstance(format, RowFormat):
        return Shards(place, split, format, shard_bytes)
    assert isinstance(format, FileFormat)
    return TraceFiles(place, format)


def parquet_writer(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    # Long texts rarely recur as a whole, so dictionaries and statistics of them would cost time without helping.
    indexed = [field.name for field in schema if field.name in SHORT_TEXTS or not holds_text(field.type)]
    options = {"compression": "zstd", "compression_level": ZSTD_LEVEL}
    return pq.ParquetWriter(file, schema, use_dictionary=indexed, write_statistics=indexed, **options)


def size(value: Any) -> int:
    """The approximate bytes of a value: one per character of text, 8 for anything else."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    return sum(map(size, value)) if isinstance(value, list | tuple) else 8


def holds_text(type: pa.DataType) -> bool:
    """Whether values of a type are texts or lists of texts."""
    if pa.types.is_list(type):
        return holds_text(type.value_type)
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))
