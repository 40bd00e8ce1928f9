"""The files of a split: shards of rows (Parquet or JSON lines), or files for each trace.

Memory is constant, and equal rows give equal bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weavegen.exports.format import FileFormat, Format, Key, Row, RowFormat, Source

ROW_GROUP_CHARS = 16 << 20
"""Size of a row group. An export holds two row groups of each split in memory."""
ROW_GROUP_ROWS = 20_000
ZSTD_LEVEL = 3
"""At this level the window covers the repetition between prompts of a trace; higher levels save little."""
SHORT_TEXTS = frozenset({"job", "agent", "model", "bootstrap", "trace_status", "type", "subagent", "kind", "source"})
"""Columns of text with few distinct values."""


class SplitWriter(ABC):
    """Writes the files of one split."""

    def __init__(self, folder: Path, format: Any) -> None:
        self.rows = 0
        """Rows, or files, written so far."""
        self.text_bytes = 0
        """Size of their text before compression, about."""
        self._folder, self._format = folder, format
        self._paths: list[Path] = []

    @abstractmethod
    def add(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        """Write the rows of a trace."""

    def close(self) -> list[Path]:
        """Finish all files and return their paths in order."""
        return self._paths

    def abandon(self) -> None:  # noqa: B027 (a file per trace is never open)
        """Close what is open. The caller removes the files."""


def split_writer(format: Format, folder: Path, split: str, shard_bytes: int) -> SplitWriter:
    """The writer of a split's files below `folder`."""
    place = folder / ("data" if isinstance(format, RowFormat) else split)
    place.mkdir(exist_ok=True)
    if isinstance(format, RowFormat):
        layout = ParquetShards if format.layout == "parquet" else JsonShards
        return layout(place, split, format, shard_bytes)
    assert isinstance(format, FileFormat)
    return TraceFiles(place, format)


class TraceFiles(SplitWriter):
    """The files of each trace. A trace counts as one row."""

    def add(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        before = len(self._paths)
        for name, parts in self._format.files(source, trace):
            self._paths.append(self._folder / name)
            self._paths[-1].parent.mkdir(parents=True, exist_ok=True)
            with self._paths[-1].open("x", encoding="utf-8") as file:
                for text in parts:
                    file.write(text)
                    self.text_bytes += len(text)
        self.rows += len(self._paths) > before


class _Shards(SplitWriter):
    """Shards of rows, one after the other. They are named `SPLIT-00000-of-00002.SUFFIX` in the end."""

    suffix = ""

    def __init__(self, folder: Path, split: str, format: RowFormat, shard_bytes: int) -> None:
        super().__init__(folder, format)
        self._split, self._shard_bytes = split, shard_bytes
        self._file: IO[bytes] | None = None

    def add(self, source: Source, trace: int, keys: Iterator[Key]) -> None:
        for row in self._format.rows(source, trace, keys):
            self._write(row)
            self.rows += 1

    @abstractmethod
    def _write(self, row: Row) -> None: ...

    def _open(self) -> IO[bytes]:
        """The shard that is being written; a new one if the last is full."""
        if self._file is None:
            self._paths.append(self._folder / f"{self._split}-{len(self._paths):05d}.draft")
            self._file = self._paths[-1].open("xb")
        return self._file

    def _end_shard(self) -> None:
        """Close the shard. `new_folder` writes it to the disk."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> list[Path]:
        self._end_shard()
        name = f"{self._split}-{{:05d}}-of-{len(self._paths):05d}.{self.suffix}"
        return [path.rename(self._folder / name.format(number)) for number, path in enumerate(self._paths)]

    def abandon(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:  # the disk has no room for the buffered part, which nobody needs
                self._file = None


class JsonShards(_Shards):
    """One JSON object per line."""

    suffix = "jsonl"

    def _write(self, row: Row) -> None:
        line = msgspec.json.encode(row)
        file = self._open()
        file.write(line + b"\n")
        self.text_bytes += len(line)
        if file.tell() >= self._shard_bytes:
            self._end_shard()


class ParquetShards(_Shards):
    """Parquet with zstd, one row group for each ROW_GROUP_CHARS of text.

    A thread compresses and writes a row group while the next one is collected from the database.
    At most two row groups are in memory.
    """

    suffix = "parquet"

    def __init__(self, folder: Path, split: str, format: RowFormat, shard_bytes: int) -> None:
        super().__init__(folder, split, format, shard_bytes)
        self._writer: pq.ParquetWriter | None = None
        self._group: list[Row] = []
        self._group_chars = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None
        # Long texts rarely recur as a whole, so dictionaries and statistics of them would cost and not help.
        self._indexed = [
            field.name for field in self._format.schema if field.name in SHORT_TEXTS or not holds_text(field.type)
        ]

    def _write(self, row: Row) -> None:
        chars = sum(map(size, row.values()))
        self._group.append(row)
        self._group_chars += chars
        self.text_bytes += chars
        if self._group_chars >= ROW_GROUP_CHARS or len(self._group) >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Have the thread write the collected row group after the previous one. Raises that one's error."""
        if self._writing is not None:
            self._writing.result()
        self._writing = self._thread.submit(self._write_group, self._group)
        self._group, self._group_chars = [], 0

    def _write_group(self, rows: list[Row]) -> None:
        columns = [pa.array([row[field.name] for row in rows], type=field.type) for field in self._format.schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._format.schema)
        file = self._open()
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                file,
                self._format.schema,
                compression="zstd",
                compression_level=ZSTD_LEVEL,
                use_dictionary=self._indexed,
                write_statistics=self._indexed,
            )
        self._writer.write_batch(batch, row_group_size=batch.num_rows)
        if file.tell() >= self._shard_bytes:
            self._end_shard()

    def _end_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super()._end_shard()

    def close(self) -> list[Path]:
        if self._group:
            self._flush()
        if self._writing is not None:
            self._writing.result()
        self._thread.shutdown()
        return super().close()

    def abandon(self) -> None:
        self._thread.shutdown()
        if self._writer is not None:
            self._writer.is_open = False  # otherwise its finaliser would write to the closed file
        super().abandon()


def size(value: Any) -> int:
    """The approximate bytes of a value: one per character of text, 8 for anything else."""
    if isinstance(value, str):
        return len(value)
    return sum(map(size, value)) if isinstance(value, list | tuple) else 8


def holds_text(type: pa.DataType) -> bool:
    """Whether values of a type are texts or lists of texts."""
    if pa.types.is_list(type):
        return holds_text(type.value_type)
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))
