"""Reads a folder of documents for a job. Files outside the folder are never read, wherever links point."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from weavegen.errors import UsageError
from weavegen.trace.render import clean

MAX_FILES = 10_000
MAX_FILE_BYTES = 1 << 20
MAX_FOLDER_BYTES = 64 << 20
SNIFFED_BYTES = 8192  # a file with a NUL in its first bytes is not text


def read_folder(folder: str | Path) -> dict[str, str]:
    """The text files below a folder: texts by relative path with slashes, sorted.

    Hidden files, files that are not UTF-8 text, and links that lead out of the folder are left out. Raises UsageError
    if no file is left, or if there are too many.
    """
    try:
        root = Path(folder).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # a loop of links is a RuntimeError
        raise UsageError(f"{str(folder)!r} does not exist: give the path of a folder with documents") from None
    if not root.is_dir():
        raise UsageError(f"{folder} is not a folder: give the path of a folder with documents")
    files: dict[str, str] = {}
    size = 0
    for number, path in enumerate(visible(root), 1):
        name = path.relative_to(root).as_posix()
        if number > MAX_FILES:
            raise UsageError(f"{folder} has more than {MAX_FILES:,} files: give a smaller folder")
        data = read(path, root) if named_plainly(name) else None
        text = None if data is None else decoded(data)
        if data is None or text is None:
            continue
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(f"{name} is larger than {MAX_FILE_BYTES >> 20} MB: split it, or hide it with a dot")
        size += len(data)
        if size > MAX_FOLDER_BYTES:
            raise UsageError(f"{folder} has more than {MAX_FOLDER_BYTES >> 20} MB of text: give a smaller folder")
        files[name] = text
    if not files:
        raise UsageError(f"{folder} has no text files: give a folder with documents in UTF-8")
    return dict(sorted(files.items()))


def visible(root: Path) -> Iterator[Path]:
    """The files that are not hidden. Links to folders are not followed."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder, name)


def named_plainly(name: str) -> bool:
    """Whether a path has neither control characters nor line feeds."""
    return clean(name) == name and "\n" not in name


def read(path: Path, root: Path) -> bytes | None:
    """At most MAX_FILE_BYTES + 1 bytes of a file; None if it is not a file in `root`. Raises UsageError."""
    try:
        real = path.resolve(strict=True)
        # Reading a pipe would block; devices may be endless.
        if not real.is_relative_to(root) or not stat.S_ISREG(real.stat().st_mode):
            return None
        with real.open("rb") as file:
            data = file.read(SNIFFED_BYTES)
            return data if b"\0" in data else data + file.read(MAX_FILE_BYTES + 1 - len(data))
    except PermissionError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; allow it, or hide it with a dot") from None
    except (OSError, RuntimeError):
        return None  # a broken link


def decoded(data: bytes) -> str | None:
    """The text without a byte order mark, with line feeds as the only line ends; None if it is not UTF-8 text."""
    if b"\0" in data:
        return None
    try:
        # The last character of a file that is too large may be cut.
        text = data.decode("utf-8-sig", errors="ignore" if len(data) > MAX_FILE_BYTES else "strict")
    except UnicodeDecodeError:
        return None
    return clean(text)
