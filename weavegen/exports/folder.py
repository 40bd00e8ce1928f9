"""The folder of an export. It appears whole under its name, or not at all."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg

from weavegen.errors import UsageError, WeavegenError

MARK = ".weavegen-export"
"""File in a folder that an export is writing. It identifies what a killed export left."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def check_free(out: Path) -> None:
    """Raise UsageError where `out` exists."""
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} already exists: give --out a folder that does not exist, or remove it")


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder `OUT.part` to write in. At the end it is renamed to `out`; after any error it is removed.

    Raises UsageError where it cannot be created, and WeavegenError for errors of the disk or the database inside.
    """
    part = out.with_name(out.name + ".part")
    check_free(out)
    with _held(part):
        try:
            clear(part)
            (part / MARK).touch()
            yield part
            for path in (*part.rglob("*"), part):
                _sync(path)
            part.rename(out)
            (out / MARK).unlink()
            _sync(out.absolute().parent)
        except BaseException as error:
            shutil.rmtree(part, ignore_errors=True)
            if (translated := _translated(error, out, part)) is not None:
                raise translated from None
            raise


@contextlib.contextmanager
def _held(part: Path) -> Iterator[None]:
    """Create a folder, and lock it against other exports. Refuses one that no export made."""
    try:
        part.mkdir(parents=True, exist_ok=True)
        handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{part} cannot be created: {error.strerror}; give another --out") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another export writes to {part}: wait for it, or give another --out") from None
        if any(part.iterdir()) and not (part / MARK).exists():
            raise UsageError(f"{part} exists and was not made by an export: move it, or give another --out")
        yield
    finally:
        os.close(handle)


def clear(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _translated(error: BaseException, out: Path, part: Path) -> WeavegenError | None:
    """An error of the disk or the database as the user should read it; None for other errors."""
    left = f"{part} could not be removed and is incomplete" if part.exists() else "nothing is left of it"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return WeavegenError(f"{out} was not written: {error.strerror}; {left}. Give an --out on a disk with more room")
    if isinstance(error, OSError):
        return WeavegenError(f"{out} was not written: {error}; {left}")
    if isinstance(error, psycopg.Error):
        text = " ".join(str(error).split())[:300]
        return WeavegenError(f"{out} was not written, the database failed: {text}; {left}. Try again")
    return None


def _sync(path: Path) -> None:
    """Write a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
