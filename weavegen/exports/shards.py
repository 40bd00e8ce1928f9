"""Files of a split: Parquet or JSON lines, in shards, at constant memory; equal rows give equal bytes."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from weavegen.exports.format import Row, RowFormat

ROW_GROUP = 16 << 20
"""Bytes of text that are gathered before they are written: of each split an export holds twice that in memory."""
ROW_GROUP_ROWS = 20_000
LEVEL = 3
"""Of zstd. Prompts of one trace repeat each other within its window at this level, so more brings little."""


class Shards(Protocol):
    """Takes rows, writes shards."""

    text: int
    """Bytes of text taken so far."""
    rows: int

    def write(self, row: Row) -> None: ...

    def close(self) -> list[Path]:
        """Finish the last shard, see all on the disk, name them `SPLIT-00000-of-00002`. None without rows."""
        ...

    def abandon(self) -> None:
        """Close what is open; what was written will be removed."""
        ...


def weight(value: Any) -> int:
    """Bytes of a value, about: characters of text, 8 of anything else."""
    if isinstance(value, str):
        return len(value)
    return sum(map(weight, value)) if isinstance(value, list | tuple) else 8


class _Files:
    """Shards of one split, one after the other."""

    suffix = ""

    def __init__(self, folder: Path, split: str, format: RowFormat, shard_bytes: int) -> None:
        self.text = self.rows = 0
        self._folder, self._split, self._format, self._most = folder, split, format, shard_bytes
        self._paths: list[Path] = []
        self._file: IO[bytes] | None = None

    def _open(self) -> IO[bytes]:
        """The shard that is being written; a new one after one that is full."""
        if self._file is None:
            self._paths.append(self._folder / f"{self._split}-{len(self._paths):05d}.draft")
            self._file = self._paths[-1].open("xb")
        return self._file

    def _end(self) -> None:
        """What is written lies on the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def abandon(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:  # what is buffered has no room; it is not wanted either
                self._file = None

    def _named(self) -> list[Path]:
        named = []
        for number, path in enumerate(self._paths):
            name = f"{self._split}-{number:05d}-of-{len(self._paths):05d}.{self.suffix}"
            named.append(path.rename(self._folder / name))
        return named


class ParquetShards(_Files):
    """Parquet, zstd, a row group for each ROW_GROUP of text.

    A row group is compressed and written by a thread while the next one is gathered, which mostly waits for the
    database: two of them are in memory at most.
    """

    suffix = "parquet"

    def __init__(self, folder: Path, split: str, format: RowFormat, shard_bytes: int) -> None:
        super().__init__(folder, split, format, shard_bytes)
        self._schema = format.schema
        self._writer: pq.ParquetWriter | None = None
        self._gathered: list[Row] = []
        self._weight = 0
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._writing: Future[None] | None = None
        # Texts hardly repeat as a whole: a dictionary of them, and their least and greatest, cost and say nothing.
        self._short = [one.name for one in self._schema if one.name in SHORT or not _of_text(one.type)]

    def write(self, row: Row) -> None:
        self._gathered.append(row)
        self._weight += sum(map(weight, row.values()))
        if self._weight >= ROW_GROUP or len(self._gathered) >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Have what was gathered written as a row group, once the one before is. Raises what went wrong there."""
        if self._writing is not None:
            self._writing.result()
        self.rows += len(self._gathered)
        self.text += self._weight
        self._writing = self._thread.submit(self._write_group, self._gathered)
        self._gathered, self._weight = [], 0

    def _write_group(self, rows: list[Row]) -> None:
        columns = [pa.array([row[one.name] for row in rows], type=one.type) for one in self._schema]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        file = self._open()
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                file,
                self._schema,
                compression="zstd",
                compression_level=LEVEL,
                use_dictionary=self._short,
                write_statistics=self._short,
            )
        self._writer.write_batch(batch, row_group_size=batch.num_rows)
        if file.tell() >= self._most:
            self._end()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        super()._end()

    def close(self) -> list[Path]:
        if self._gathered:
            self._flush()
        if self._writing is not None:
            self._writing.result()
        self._thread.shutdown()
        self._end()
        return self._named()

    def abandon(self) -> None:
        self._thread.shutdown()
        if self._writer is not None:
            self._writer.is_open = False  # else it would write its end into a closed file when it is collected
        super().abandon()


SHORT = frozenset({"job", "agent", "model", "bootstrap", "trace_status", "type", "subagent", "kind", "source"})
"""Columns of text with few values."""


def _of_text(type: pa.DataType) -> bool:
    if pa.types.is_list(type):
        return _of_text(type.value_type)
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


class JsonLines(_Files):
    """One JSON object a line."""

    suffix = "jsonl"

    def write(self, row: Row) -> None:
        line = msgspec.json.encode(row)
        file = self._open()
        file.write(line + b"\n")
        self.rows += 1
        self.text += len(line)
        if file.tell() >= self._most:
            self._end()

    def close(self) -> list[Path]:
        self._end()
        return self._named()


LAYOUTS: dict[str, type[ParquetShards | JsonLines]] = {"parquet": ParquetShards, "jsonl": JsonLines}
