"""A folder as a job's documents: its text files as they are now. Nothing outside the folder is ever read."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from weavegen.errors import UsageError
from weavegen.trace.render import clean

MOST_FILES = 10_000
LARGEST = 1 << 20
"""Bytes of one file."""
LARGEST_ALL = 64 << 20
"""Bytes of all of them."""
SNIFFED = 8192
"""Bytes by which a file is told to be text."""


@dataclass(frozen=True)
class Folder:
    """What a folder holds."""

    files: dict[str, str]
    """Texts by path in the folder, with slashes, sorted."""
    skipped: int
    """Files that are no UTF-8 text, and links that lead out of the folder. Hidden ones are not counted."""

    @property
    def bytes(self) -> int:
        return sum(len(text.encode()) for text in self.files.values())


def read_folder(folder: str | Path) -> Folder:
    """The text files below a folder. Raises UsageError where there is none, or more than may be."""
    try:
        root = Path(folder).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # a loop of links is a RuntimeError
        raise UsageError(f"{str(folder)!r} does not exist: give the path of a folder with documents") from None
    if not root.is_dir():
        raise UsageError(f"{folder} is no folder: give the path of a folder with documents")
    files: dict[str, str] = {}
    skipped, size = 0, 0
    for number, path in enumerate(visible(root), 1):
        name = path.relative_to(root).as_posix()
        if number > MOST_FILES:
            raise UsageError(f"{folder} has more than {MOST_FILES:,} files: give a smaller folder")
        data = read(path, root) if named_plainly(name) else None
        text = None if data is None else decoded(data)
        if data is None or text is None:
            skipped += 1
            continue
        if len(data) > LARGEST:
            raise UsageError(f"{name} is larger than {LARGEST >> 20} MB: split it, or hide it with a dot")
        size += len(data)
        if size > LARGEST_ALL:
            raise UsageError(f"{folder} has more than {LARGEST_ALL >> 20} MB of text: give a smaller folder")
        files[name] = text
    if not files:
        raise UsageError(f"{folder} has no text files: give a folder with documents in UTF-8")
    return Folder(dict(sorted(files.items())), skipped)


def visible(root: Path) -> Iterator[Path]:
    """What is not hidden and no folder. Links to folders are not followed."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder, name)


def named_plainly(name: str) -> bool:
    """Whether a path can be stored and shown as it is."""
    return clean(name) == name and "\n" not in name


def read(path: Path, root: Path) -> bytes | None:
    """A file's first bytes, one more than it may have; None: it is none, or lies elsewhere. Raises UsageError."""
    try:
        real = path.resolve(strict=True)
        # Neither a pipe, which would be waited for, nor a device.
        if not real.is_relative_to(root) or not stat.S_ISREG(real.stat().st_mode):
            return None
        with real.open("rb") as file:
            data = file.read(SNIFFED)
            return data if b"\0" in data else data + file.read(LARGEST + 1 - len(data))
    except (OSError, RuntimeError) as error:
        if isinstance(error, PermissionError):
            raise UsageError(f"{path} can't be read: {error.strerror}; allow it, or hide it with a dot") from None
        return None  # a link that leads nowhere


def decoded(data: bytes) -> str | None:
    """A text with line feeds, without a byte order mark; None: it is none."""
    if b"\0" in data:
        return None
    try:
        # The last character of one that is too long may have been cut.
        text = data.decode("utf-8-sig", errors="ignore" if len(data) > LARGEST else "strict")
    except UnicodeDecodeError:
        return None
    return clean(text)
