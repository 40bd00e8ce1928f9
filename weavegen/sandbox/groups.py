"""Control groups (cgroups(7)). Where this process may make groups, the kernel limits each box as a whole.

Version 1 has a tree per controller, version 2 one tree for all. The group of a box is a child of the worker's
group, so limits of the worker include its boxes. In version 2, a group that contains processes can't give
controllers to its children: there the box's group is the child of a group above, if systemd has delegated one to
this user. Without any group, the watch (watch.py) enforces the limits.
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
"""Controllers of version 1 that are used, and a file that exists where the controller works."""
STALE_SECONDS = 120.0  # age after which an empty group is unused: no start takes that long
SOCKET_SHARE = 8
"""Version 1 counts the buffers of TCP and UDP separately: they may hold a further eighth of the box's memory."""
PERIOD_MICROSECONDS = 100_000  # period over which the kernel limits processor time; its default


def create(name: str, limits: Limits) -> tuple[str, ...]:
    """Make groups with these limits. Returns their paths; none if this process may not make groups."""
    made = []
    for parent in parents():
        group = Path(parent, name)
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            made.append(str(group))
            for file, text in values(limits).items():
                with contextlib.suppress(OSError):  # a controller may be missing, or not count swap
                    (group / file).write_text(text)
    return tuple(made)


def values(limits: Limits) -> dict[str, str]:
    """Return the text for each control file. A group has only the files of its version and controllers."""
    cores = int(limits.cores * PERIOD_MICROSECONDS)
    return {
        "memory.swappiness": "0",  # for kernels that do not limit swap
        "memory.limit_in_bytes": str(limits.memory),
        "memory.memsw.limit_in_bytes": str(limits.memory),
        "memory.kmem.tcp.limit_in_bytes": str(limits.memory // SOCKET_SHARE),
        "cpu.cfs_quota_us": str(cores),
        "memory.max": str(limits.memory),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": f"{cores} {PERIOD_MICROSECONDS}",
        "pids.max": str(limits.processes + 8),  # process 1, and short-lived processes of the start
    }


def join(groups: tuple[str, ...], pid: int) -> tuple[str, ...]:
    """Move a process into the groups; its future children follow. Returns the groups that accepted it."""
    joined = []
    for group in groups:
        with contextlib.suppress(OSError):
            Path(group, "cgroup.procs").write_text(str(pid))
            joined.append(group)
    return tuple(joined)


def remove(groups: tuple[str, ...], wait: float = 0.5) -> None:
    """Remove groups whose processes have ended. Retries for `wait` seconds while the kernel calls them busy."""
    deadline = time.monotonic() + wait
    for group in groups:
        while os.path.exists(group):
            with contextlib.suppress(OSError):
                os.rmdir(group)
                break
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)


def killed_for_memory(groups: tuple[str, ...]) -> bool:
    """Whether the kernel has killed a process in these groups for exceeding the memory limit."""
    files = (Path(group, name) for group in groups for name in ("memory.oom_control", "memory.events"))
    return any(number(file, "oom_kill") for file in files)


def cpu_seconds(groups: tuple[str, ...]) -> float | None:
    """Return the processor time used in these groups so far; None if no controller counts it."""
    for group in groups:
        if (nanoseconds := number(Path(group, "cpuacct.usage"))) is not None:
            return nanoseconds / 1e9
        if (microseconds := number(Path(group, "cpu.stat"), "usage_usec")) is not None:
            return microseconds / 1e6
    return None


def limits_memory(groups: tuple[str, ...], limits: Limits) -> bool:
    """Whether the kernel enforces the memory limit on these groups."""
    found = (number(Path(group, name)) for group in groups for name in ("memory.max", "memory.limit_in_bytes"))
    return any(limit is not None and limit <= limits.memory for limit in found)


def number(file: Path, name: str | None = None) -> int | None:
    """Return the number in a control file, or after `name` in it; None if it is missing, or "max"."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        text = file.read_text()
        return int(text if name is None else dict(line.split() for line in text.splitlines())[name])
    return None


@cache
def parents() -> tuple[Path, ...]:
    """Return the groups in which this process can make groups that work: one per controller."""
    mounts = mounted()
    usable_parents: dict[Path, None] = {}  # an ordered set: cpu and cpuacct may be one tree
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, own = row.split(":", 2)
            if names == "":
                candidates = delegated_groups(mounts[""], own) if "" in mounts else []
                for parent in candidates:
                    with contextlib.suppress(OSError):
                        (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
                if useful := next((path for path in candidates if usable(path, "memory.max")), None):
                    usable_parents[useful] = None
                continue
            for name in names.split(","):
                parent = mounts.get(name, Path()) / own.lstrip("/")
                if name in CONTROLLERS and name in mounts and usable(parent, CONTROLLERS[name]):
                    usable_parents[parent] = None
    for parent in usable_parents:
        sweep(parent)
    return tuple(usable_parents)


def delegated_groups(root: Path, own: str) -> list[Path]:
    """Version 2: return the worker's group and the groups above it, up to the last that systemd delegated.

    systemd marks delegated groups with extended attributes. Other groups must not be written to.
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
    """Remove old empty groups, which are left when worker and boxes were killed together."""
    with contextlib.suppress(OSError):
        for group in parent.glob("weavegen-*"):
            with contextlib.suppress(OSError):  # in use, or already removed
                if group.stat().st_mtime < time.time() - STALE_SECONDS:
                    group.rmdir()


def usable(parent: Path, file: str) -> bool:
    """Whether a new group in `parent` has this control file. Makes one to find out."""
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
    """Return the mount points of the trees: by controller for version 1, and under "" for version 2."""
    mounts: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for row in Path("/proc/self/mounts").read_text().splitlines():
            _, place, kind, options, *_ = row.split()
            if kind in ("cgroup", "cgroup2"):
                for name in options.split(",") if kind == "cgroup" else [""]:
                    mounts.setdefault(name, Path(place))
    return mounts
