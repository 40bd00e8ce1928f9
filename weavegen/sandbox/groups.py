"""Control groups: the kernel's own account of a box as a whole, where this process may make some.

Version 1 has a tree for each controller, version 2 one for all. A box gets a group of its own below the group that
the worker is in, so that what holds for the worker holds for its boxes. In version 2 a group with processes can't
hand controllers on: there it is one above, if systemd has delegated that to us. Where none can be had, the watch
(watch.py) is what limits a box.
"""

import contextlib
import os
import threading
import time
from functools import cache
from pathlib import Path

from weavegen.sandbox.providers import Limits

CONTROLLERS = {
    "memory": "memory.limit_in_bytes",
    "pids": "pids.max",
    "cpu": "cpu.cfs_quota_us",
    "cpuacct": "cpuacct.usage",
}
"""Of version 1: what is wanted, and a file that shows that it is there."""
OLD = 120.0
"""Seconds after which an empty group is nobody's: no start takes so long."""
PERIOD = 100_000
"""Microseconds over which processor time is shared out; the kernel's default."""


def create(name: str, limits: Limits) -> tuple[str, ...]:
    """Groups with these limits, as paths; none if none can be had. Put a process in with `join`."""
    made = []
    for parent in parents():
        group = Path(parent, name)
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            made.append(str(group))
            for file, text in values(limits).items():
                with contextlib.suppress(OSError):  # a controller may be missing, or have no account of swap
                    (group / file).write_text(text)
    return tuple(made)


def values(limits: Limits) -> dict[str, str]:
    """What to write into which file; a group has only those of its version and controllers."""
    cores = int(limits.cores * PERIOD)
    return {
        "memory.swappiness": "0",  # where swap has no account of its own
        "memory.limit_in_bytes": str(limits.memory),
        "memory.memsw.limit_in_bytes": str(limits.memory),
        "cpu.cfs_quota_us": str(cores),
        "memory.max": str(limits.memory),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": f"{cores} {PERIOD}",
        "pids.max": str(limits.processes + 8),  # process 1, and what a start needs for a moment
    }


def join(groups: tuple[str, ...], pid: int) -> tuple[str, ...]:
    """Put a process in; its children will be there, too. Gives the groups that have taken it."""
    joined = []
    for group in groups:
        with contextlib.suppress(OSError):
            Path(group, "cgroup.procs").write_text(str(pid))
            joined.append(group)
    return tuple(joined)


def remove(groups: tuple[str, ...], wait: float = 0.5) -> None:
    """Remove groups whose processes have ended; the kernel may need a moment to see that they have."""
    deadline = time.monotonic() + wait
    for group in groups:
        while True:
            try:
                os.rmdir(group)
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() < deadline:
                    time.sleep(0.005)
                    continue
            break


def killed_for_memory(groups: tuple[str, ...]) -> bool:
    """Whether the kernel has killed something in these groups because they were full."""
    for group in groups:
        for file in ("memory.oom_control", "memory.events"):
            with contextlib.suppress(OSError):
                counts = dict(line.split() for line in Path(group, file).read_text().splitlines())
                if int(counts.get("oom_kill", "0")) > 0:
                    return True
    return False


def cpu_seconds(groups: tuple[str, ...]) -> float | None:
    """Processor time that was used in these groups so far; None if nobody counts it."""
    for group in groups:
        with contextlib.suppress(OSError):
            return int(Path(group, "cpuacct.usage").read_text()) / 1e9
        with contextlib.suppress(OSError):
            counts = dict(line.split() for line in Path(group, "cpu.stat").read_text().splitlines())
            if "usage_usec" in counts:
                return int(counts["usage_usec"]) / 1e6
    return None


def limits_memory(groups: tuple[str, ...], limits: Limits) -> bool:
    """Whether the kernel holds the processes in these groups to their limit."""
    for group in groups:
        for file in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                if int(Path(group, file).read_text()) <= limits.memory:
                    return True
    return False


@cache
def parents() -> tuple[Path, ...]:
    """The groups in which this process can make groups that limit something; one for each controller."""
    mounts = mounted()
    found: dict[Path, None] = {}  # an ordered set: cpu and cpuacct may be one tree
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, own = row.split(":", 2)
            if names == "":
                candidates = ours(mounts[""], own) if "" in mounts else []
                for parent in candidates:
                    with contextlib.suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
                useful = next((path for path in candidates if usable(path, "memory.max")), None)
                if useful is not None:
                    found[useful] = None
                continue
            for name in names.split(","):
                parent = mounts.get(name, Path()) / own.lstrip("/")
                if name in CONTROLLERS and name in mounts and usable(parent, CONTROLLERS[name]):
                    found[parent] = None
    for parent in found:
        sweep(parent)
    return tuple(found)


def ours(root: Path, own: str) -> list[Path]:
    """Of version 2: the worker's own group, and those above it up to the last that systemd leaves to its user.

    systemd marks such groups by extended attributes; all others are its own to write to.
    """
    path = root / own.lstrip("/")
    above = [path, *(parent for parent in path.parents if parent.is_relative_to(root))]
    last = max((place for place, group in enumerate(above) if delegated(group)), default=0)
    return above[: last + 1]


def delegated(group: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def sweep(parent: Path) -> None:
    """Remove what was left behind where everything was killed at once: groups that are old and empty."""
    with contextlib.suppress(OSError):
        for group in parent.glob("weavegen-*"):
            with contextlib.suppress(OSError):  # it is in use, or was removed meanwhile
                if group.stat().st_mtime < time.time() - OLD:
                    group.rmdir()


def usable(parent: Path, file: str) -> bool:
    """Whether a group can be made in `parent` and has this file."""
    trial = parent / f"weavegen-trial-{threading.get_native_id()}"
    try:
        trial.mkdir(exist_ok=True)
    except OSError:
        return False
    try:
        return all(os.access(trial / name, os.F_OK) for name in ("cgroup.procs", file))
    finally:
        with contextlib.suppress(OSError):
            trial.rmdir()


def mounted() -> dict[str, Path]:
    """Where the trees are: by controller of version 1, and version 2 as ""."""
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, options, *_ = row.split()
            if kind == "cgroup2":
                found.setdefault("", Path(place))
            elif kind == "cgroup":
                for name in options.split(","):
                    found.setdefault(name, Path(place))
    return found
