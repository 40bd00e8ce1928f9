"""Makes the folders of an installation with the right permissions, and locks files between processes."""

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from weavegen.config import Config
from weavegen.errors import UsageError

log = logging.getLogger(__name__)

LOCK_TIMEOUT_SECONDS = 180.0
"""Time to wait for another command that starts or stops the same services."""


class Locked(UsageError):
    """Another process holds a lock."""


def private(folder: Path) -> Path:
    """Make `folder` if it is missing, and close it to other users. Raises UsageError if it is another user's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}: set WEAVEGEN_HOME to a folder you can write to") from None
    # The runtime folder may be in /tmp, where another user could have made it first.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(f"{folder} belongs to another user: remove it, or set WEAVEGEN_HOME to a folder of your own")
    # PostgreSQL does not run as root: its user must be able to pass through this folder, but not to list it.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    if stat.S_IMODE(status.st_mode) != mode:
        folder.chmod(mode)
    return folder


def prepare(config: Config) -> None:
    """Make the folders of the services."""
    private(config.home)
    private(config.runtime)
    private(config.workspaces)
    config.logs.mkdir(mode=0o700, exist_ok=True)
    config.logs.chmod(0o700)  # in case it existed with other permissions


def let_through(path: Path) -> None:
    """Let every user pass through the folders above `path`, without permission to list them."""
    for folder in path.resolve().parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            log.warning("%s: mode is now %o, so that PostgreSQL's user can reach %s", folder, mode | 1, path)
            folder.chmod(mode | stat.S_IXOTH)


def let_read(folder: Path) -> None:
    """Let every user read a folder and what is in it, without links: boxes have user ids of their own."""
    for path in (path for path in (folder, *folder.rglob("*")) if not path.is_symlink()):
        with contextlib.suppress(OSError):
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def once(folder: Path, make: Callable[[Path], None], timeout: float = LOCK_TIMEOUT_SECONDS) -> Path:
    """Return `folder`. If it is missing, `make` makes a draft, which takes the name when it is complete.

    Processes that need the same folder wait for the first of them, and raise Locked after `timeout` seconds. Raises
    what `make` raises.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with locked(folder.parent / f".{folder.name}.lock", timeout):
        if not folder.is_dir():
            prefix = f".draft-{folder.name}-"
            for left in folder.parent.glob(f"{prefix}*"):  # left by killed processes
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent) as scratch:
                make(draft := Path(scratch, folder.name))
                draft.rename(folder)
    return folder


def extract(archive: tarfile.TarFile, folder: Path, filter: str) -> None:
    """Write the files of weavegen's own archive, by a filter of tarfile. Python 3.11.2 (Debian 12) has no filters."""
    archive.extraction_filter = getattr(tarfile, f"{filter}_filter", None)
    archive.extractall(folder)


class Kept:
    """Notices when a file or a folder is removed, even if another one takes its place."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the path does not exist."""
        self.path = path
        # While it is open, no other file gets its inode number.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def removed(self) -> bool:
        try:
            return not os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except OSError:
            return True


@contextlib.contextmanager
def locked(path: Path, timeout: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
    """Hold a lock on a file against other processes and threads. Not reentrant. Raises Locked after `timeout` s."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + timeout
        waiting = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Locked(f"another weavegen command holds {path}: wait until it ends, or end it") from None
            if not waiting:
                log.info("waiting for another weavegen command (%s)", path.name)
                waiting = True
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
