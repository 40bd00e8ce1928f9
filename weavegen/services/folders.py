"""The folders of an installation, who may enter them, and locks between processes."""

import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from weavegen.config import Config
from weavegen.errors import UsageError

log = logging.getLogger(__name__)

LOCK_TIMEOUT = 180.0
"""Seconds to wait for another command that starts or stops the same services."""


def private(folder: Path) -> Path:
    """`folder`, made if need be, ours and closed to other users. Raises UsageError where it is not ours."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise UsageError(
            f"{folder} can't be made ({error.strerror}): set WEAVEGEN_HOME to a folder you can write to"
        ) from None
    # The runtime folder may lie in /tmp under a name that anyone can work out and make first.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise UsageError(
            f"{folder} belongs to another user: remove it, or set WEAVEGEN_HOME to a folder of your own"
        )
    # PostgreSQL does not run as root; the user that it runs as must get through to its data, but see nothing.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    if stat.S_IMODE(status.st_mode) != mode:
        folder.chmod(mode)
    return folder


def prepare(config: Config) -> None:
    """Makes the folders that services live in."""
    private(config.home)
    private(config.runtime)
    private(config.workspaces)
    config.logs.mkdir(mode=0o700, exist_ok=True)
    config.logs.chmod(0o700)  # made by someone else, with other rights


def let_through(path: Path) -> None:
    """Lets every user walk through the folders above `path`, without seeing what else is in them."""
    for folder in path.resolve().parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH:
            log.warning(
                "%s: now open for passing through (mode %o), PostgreSQL's user must reach %s",
                folder,
                mode | 1,
                path,
            )
            folder.chmod(mode | stat.S_IXOTH)


@contextlib.contextmanager
def locked(path: Path, timeout: float = LOCK_TIMEOUT) -> Iterator[None]:
    """Holds `path` as a lock against every other process and thread. Not to be nested on one path."""
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
                    raise UsageError(
                        f"another weavegen command holds {path}: wait for it to end, or end it"
                    ) from None
            if not waiting:
                log.info("waiting for another weavegen command (%s)", path.name)
                waiting = True
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
