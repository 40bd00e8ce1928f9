"""Child processes that are to outlive their parent: somebody has to collect their exit status while it lives."""

import subprocess
import threading
from pathlib import Path

_children: list["subprocess.Popen[bytes]"] = []
_lock = threading.Lock()


def adopt(process: "subprocess.Popen[bytes]") -> None:
    """Keep a child, and collect those that have ended since."""
    with _lock:
        _children[:] = [child for child in _children if child.poll() is None]
        _children.append(process)


def collect() -> None:
    """Collect the children that have ended, so that no zombies stay."""
    with _lock:
        _children[:] = [child for child in _children if child.poll() is None]


def tail(log: Path, most: int = 500) -> str:
    """The end of a log, as one line."""
    try:
        return " / ".join(log.read_text(errors="replace")[-most:].split("\n")).strip(" /")
    except OSError:
        return ""
