"""Child processes that outlive this one. While it lives, it must collect their exit status."""

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weavegen.sandbox.providers import Box

_children: dict[int, "subprocess.Popen[bytes]"] = {}
_lock = threading.Lock()


def adopt(pid: int, child: "subprocess.Popen[bytes]") -> None:
    """Remember a child until it ends. `pid`: its own, or that of process 1 of the box that it started."""
    collect()
    with _lock:
        _children[pid] = child


def spawn(command: list[str], box: "Box", **options: Any) -> "subprocess.Popen[bytes]":
    """Start a command detached from this process, with the box's log as its output."""
    with box.log.open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **options
        )


def collect() -> None:
    """Collect the children that have ended, so that none stays a zombie."""
    with _lock:
        for pid in [pid for pid, child in _children.items() if child.poll() is not None]:
            del _children[pid]


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
