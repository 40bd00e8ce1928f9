"""Stops all processes of a box, for a while or for good. Processes in a box can't leave the tree of process 1."""

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from weavegen.sandbox import groups
from weavegen.sandbox.children import family
from weavegen.sandbox.providers import Handle


def end(handle: Handle) -> None:
    """Kill every process of a box, and remove its control groups. Raises EnvironmentFailure if they do not end."""
    handle.kill()
    handle.wait(5.0)
    groups.remove(handle.groups)


@contextlib.contextmanager
def stopped(handle: Handle) -> Iterator[bool]:
    """Stop the processes of a box while the body runs. Yields whether all have stopped in time.

    A process that handles SIGCONT is left alone: an editor would redraw its screen. A process can also set a timer
    that resumes it. So callers may rely on this only to keep honest programs from changing files meanwhile.
    """
    suspended: set[psutil.Process] = set()
    deadline = time.monotonic() + 10.0
    try:
        while (running := {p for p in members(handle) if runs(p, suspended)}) and time.monotonic() < deadline:
            for process in running:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
            suspended |= running
            time.sleep(0.001)
        yield not running
    finally:
        resume(suspended)


def resume(processes: set[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.resume()


def members(handle: Handle) -> set[psutil.Process]:
    """The processes of a box; none if it has ended."""
    with contextlib.suppress(psutil.Error):
        return set(family(psutil.Process(handle.pid))) if handle.alive() else set()
    return set()


def runs(process: psutil.Process, suspended: set[psutil.Process]) -> bool:
    """Whether a process is still to be stopped. A zombie may have threads that run: it is stopped once."""
    with contextlib.suppress(OSError, LookupError, ValueError):
        fields = dict(row.split(":\t", 1) for row in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        handled = int(fields["SigCgt"], 16) >> (signal.SIGCONT - 1) & 1
        return not handled and fields["State"][0] not in ("TtXZ" if process in suspended else "TtX")
    return False
