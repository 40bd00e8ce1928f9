"""Child processes that are to outlive their parent: somebody has to collect their exit status while it lives."""

import subprocess
import threading
from pathlib import Path

_children: dict[int, "subprocess.Popen[bytes]"] = {}
_lock = threading.Lock()


def adopt(pid: int, child: "subprocess.Popen[bytes]") -> None:
    """Keep the child that the box with this process 1 hangs on; collect those that have ended since."""
    collect()
    with _lock:
        _children[pid] = child


def collect() -> None:
    """Collect the children that have ended, so that no zombies stay."""
    with _lock:
        for pid in [pid for pid, child in _children.items() if child.poll() is not None]:
            del _children[pid]


def release(pid: int) -> None:
    """Collect the child of a box that has ended; it needs a moment to see that."""
    with _lock:
        child = _children.pop(pid, None)
    if child is not None:
        try:
            child.wait(1)
        except subprocess.TimeoutExpired:
            adopt(pid, child)


def tail(log: Path, most: int = 500) -> str:
    """The end of a log, as one line."""
    try:
        return " / ".join(log.read_text(errors="replace")[-most:].split("\n")).strip(" /")
    except OSError:
        return ""
