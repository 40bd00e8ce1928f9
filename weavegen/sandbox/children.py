"""Child processes whose exit status this process must collect, but which may outlive it; descendants of processes."""

import glob
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

_children: dict[int, "subprocess.Popen[bytes]"] = {}
_lock = threading.Lock()
_GUARD = """
import select, signal, sys
box = int(sys.argv[1])
select.select([0, box], [], [])
signal.pidfd_send_signal(box, signal.SIGKILL)
"""


def adopt(pid: int, child: "subprocess.Popen[bytes]") -> None:
    """Remember a child until it ends. `pid`: its own, or that of process 1 of the box that it started."""
    collect()
    with _lock:
        _children[pid] = child


def spawn(command: list[str], log: Path, **options: Any) -> "subprocess.Popen[bytes]":
    """Start a command detached from this process, with a log as its output."""
    usual: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, **(usual | options))


def end_with_this_process(pid: int) -> None:
    """Have a process killed as soon as this one has ended, even by SIGKILL.

    A guard process outside the box waits until the pipe from this process closes or the box ends.
    """
    box = os.pidfd_open(pid)
    try:
        command = [sys.executable, "-IS", "-c", _GUARD, str(box)]
        # Without a buffer: closing it would raise an error once the guard has ended.
        guard = spawn(command, Path(os.devnull), bufsize=0, stdin=subprocess.PIPE, pass_fds=[box])
    finally:
        os.close(box)
    adopt(guard.pid, guard)


def collect() -> None:
    """Collect the children that have ended, so that none stays a zombie."""
    with _lock:
        for pid in [pid for pid, child in _children.items() if child.poll() is not None]:
            if (stdin := _children.pop(pid).stdin) is not None:
                stdin.close()


def release(pid: int) -> None:
    """Collect the child of a box that has ended. The child exits a moment after its box."""
    with _lock:
        child = _children.pop(pid, None)
    if child is not None:
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            adopt(pid, child)


def tail(log: Path, chars: int = 500) -> str:
    """Return the end of a log as one line; "" if it can't be read."""
    try:
        return " / ".join(log.read_text(errors="replace")[-chars:].split("\n")).strip(" /")
    except OSError:
        return ""


def family(process: psutil.Process) -> list[psutil.Process]:
    """A process and its descendants. Raises psutil.NoSuchProcess.

    The kernel lists the children of a thread (proc_pid_task_tid_children(5)). Without such lists psutil reads the
    parents of all processes of the host, which takes 50 ms of processor time on a host with a thousand boxes.
    """
    if not Path("/proc/thread-self/children").exists():
        return [process, *process.children(recursive=True)]
    found = [process]
    for member in found:
        for path in glob.glob(f"/proc/{member.pid}/task/*/children"):  # Path.glob raises if the process has ended
            with suppress(OSError):
                for pid in Path(path).read_text().split():
                    with suppress(psutil.NoSuchProcess):
                        found.append(psutil.Process(int(pid)))
    return found
