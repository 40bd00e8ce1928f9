"""The watch: checks the limits of each box that the kernel does not enforce, once a second.

A box that exceeds a limit is killed, and the reason is written to a file beside its socket, which
`Environment.failure` reads. One process per host watches the boxes of an installation: the execute worker.

Processes are read from /proc directly: psutil reads three files per process instead of one, and the watch must
stay fast with thousands of boxes.
"""

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from weavegen.sandbox import groups
from weavegen.sandbox.bubblewrap import WRITABLE
from weavegen.sandbox.providers import Handle, Limits

log = logging.getLogger(__name__)
INTERVAL_SECONDS = 1.0
"""Pause between two checks. It is longer if a check takes long."""
PAUSE_FACTOR = 10  # the pause is at least this many times the processor time of the last check
MAX_INTERVAL_SECONDS = 10.0  # maximum pause
FEW_SOCKETS = 8
"""Up to this number, the buffers of a box's sockets are not read: that takes 2 ms of processor time per box."""
CLOCK_TICK = os.sysconf("SC_CLK_TCK")
PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
MAX_DESCRIPTORS = 50_000
"""Maximum open files of all processes of a box with an image."""
MAX_PATH_BYTES = 4096  # PATH_MAX of Linux, with the NUL at the end


@dataclass(frozen=True)
class BoxState:
    """The handle and limits of a box, stored in a file, so that other processes can find the box."""

    handle: Handle
    limits: Limits
    changes: str = ""
    """The folder on the host's disk with the changes that a box has made to its image."""

    @classmethod
    def read(cls, path: Path) -> "BoxState | None":
        """Read a state. Returns None if the file is missing or invalid."""
        try:
            data = json.loads(path.read_text())
            handle = Handle(int(data["pid"]), float(data["created"]), tuple(map(str, data["groups"])))
            return cls(handle, Limits(**data["limits"]), str(data.get("changes", "")))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write the state atomically."""
        new = path.with_suffix(".new")
        new.write_text(json.dumps({**asdict(self.handle), "limits": asdict(self.limits), "changes": self.changes}))
        new.rename(path)


@dataclass(frozen=True)
class Process:
    """A process of the host, from proc_pid_stat(5)."""

    pid: int
    parent: int
    cpu: float
    """Processor time in seconds."""
    age: float
    """Seconds since it started."""
    threads: int
    memory: int
    """Bytes in memory, shared ones included."""


@dataclass(frozen=True)
class Account:
    """The processor time of a box."""

    at: float
    """Time of the last check (time.monotonic)."""
    cpu: dict[int, float]
    """Seconds by process, at the last check."""
    counted: float | None
    """Seconds counted by the control group; None without one."""
    debt: float = 0.0
    """Seconds used beyond `cpu_share` so far."""


class Watch:
    """Checks all boxes whose states are in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.accounts: dict[Path, tuple[Handle, Account]] = {}

    def check_boxes(self) -> list[Path]:
        """Kill boxes that exceed a limit, clean up after boxes that ended. Returns the states of killed boxes."""
        states = [(path, state) for path in self.folder.glob("env-*.json") if (state := BoxState.read(path))]
        for path, (handle, _) in self.accounts.items():
            if not path.exists() and handle.alive():  # its home was removed: nobody can reach it any more
                handle.kill()
        living = [(path, state) for path, state in states if state.handle.alive()]
        for path, state in states:
            if not state.handle.alive():
                record_end(path, state)
        self.accounts = {path: self.accounts[path] for path, _ in living if path in self.accounts}
        killed = []
        processes = process_table() if living else {}
        children = by_parent(processes)
        for path, state in living:
            try:
                reason = self.exceeded_limit(path, state, members(state.handle, processes, children))
            except Exception:  # the other boxes must be checked whatever one does
                log.exception("%s can't be checked", path.stem)
                continue
            if reason is not None and state.handle.alive():
                log.warning("%s is killed: %s", path.stem, reason)
                path.with_suffix(".why").write_text(reason)
                state.handle.kill()
                killed.append(path)
        return killed

    def exceeded_limit(self, path: Path, state: BoxState, members: list[Process]) -> str | None:
        """Describe the limit that a box exceeds; None if it exceeds none."""
        limits, handle = state.limits, state.handle
        last = self.accounts.get(path)
        account = update_account(last[1] if last and last[0] == handle else None, handle, members, limits)
        self.accounts[path] = handle, account
        if account.debt > limits.cpu:
            return f"it used {limits.cpu:g} seconds of processor time beyond {limits.cpu_share:g} per second"
        threads = sum(member.threads for member in members)
        if threads > limits.processes + 8:
            return f"it has {threads} processes and threads, {limits.processes} are allowed"
        used, inodes = files(handle)
        written = 0
        if state.changes:
            written, entries = disk_usage(state.changes, limits)
            written, inodes = written + deleted_bytes(handle, members, limits), inodes + entries
        if inodes > limits.inodes:
            return f"it has {inodes:,} files and folders, {limits.inodes:,} are allowed"
        if (open_sockets := sockets(handle)) > limits.sockets:
            return f"it has {open_sockets} open sockets, {limits.sockets} are allowed"
        queued = queued_bytes(handle) if open_sockets > FEW_SOCKETS else 0
        if written > limits.disk:
            return f"it has written more than {limits.disk >> 20:,} MB to its disk"
        if groups.limits_memory(handle.groups, limits) and queued <= limits.memory:
            return None
        used += queued + sum(map(page_tables, members))
        memory = used + sum(member.memory for member in members)
        if memory > limits.memory:  # shared pages were counted several times: count exactly
            memory = used + sum(own_memory(member) for member in members)
        return memory_reason(limits) if memory > limits.memory else None


def memory_reason(limits: Limits) -> str:
    return f"it used more than {limits.memory / 2**20:,.0f} MiB of memory, files included"


def kill_reason(path: Path, state: BoxState | None) -> str | None:
    """Return why a box was killed, if it exceeded a limit, and record it. `path`: the file of its state.

    The watch records its own reasons when it kills a box. Only the control groups tell, as long as they exist, that the
    kernel killed the box for its memory.
    """
    why = path.with_suffix(".why")
    if state is not None and not why.exists() and groups.killed_for_memory(state.handle.groups):
        why.write_text(memory_reason(state.limits))
    with contextlib.suppress(FileNotFoundError):  # another worker may remove it at any time
        return why.read_text()
    return None


def record_end(path: Path, state: BoxState) -> None:
    """After a box has ended, record why, if the kernel killed it, and remove its control groups."""
    kill_reason(path, state)
    groups.remove(state.handle.groups, wait=0.0)


def update_account(before: Account | None, handle: Handle, members: list[Process], limits: Limits) -> Account:
    """Update the account of a box.

    Only control groups count processes that started and ended between two checks. Without groups, each process
    that is new since the last check counts as if it had used the processor since then at its average rate.
    """
    now, counted = time.monotonic(), groups.cpu_seconds(handle.groups)
    cpu = {member.pid: member.cpu for member in members}
    if before is None:
        return Account(now, cpu, counted)
    between = now - before.at
    if counted is not None and before.counted is not None:
        used = counted - before.counted
    else:
        old = [member for member in members if member.pid in before.cpu]
        new = [member for member in members if member.pid not in before.cpu]
        used = sum(max(member.cpu - before.cpu[member.pid], 0.0) for member in old)
        used += sum(member.cpu / member.age * max(between, member.age) for member in new)
    debt = max(before.debt + used - limits.cpu_share * between, 0.0)
    return replace(before, at=now, cpu=cpu, counted=counted, debt=debt)


def process_table() -> dict[int, Process]:
    """Return all processes of the host, by pid."""
    processes, now = {}, time.clock_gettime(time.CLOCK_BOOTTIME)
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # the process has ended
            if len(fields) < 22:
                continue  # the process is ending
            # fields 4, 14, 15, 20, 22 and 24 of proc_pid_stat(5); the split begins with field 3
            cpu = (int(fields[11]) + int(fields[12])) / CLOCK_TICK
            pid = int(entry.name)
            age = max(now - int(fields[19]) / CLOCK_TICK, 1 / CLOCK_TICK)
            processes[pid] = Process(pid, int(fields[1]), cpu, age, int(fields[17]), int(fields[21]) * PAGE_SIZE)
    return processes


def by_parent(processes: dict[int, Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    return children


def descent(pid: int, children: dict[int, list[int]]) -> list[int]:
    """Return a process and all its descendants. A process in a box can't leave this tree."""
    pids = [pid]
    for member in pids:
        pids += children.get(member, [])
    return pids


def members(handle: Handle, processes: dict[int, Process], children: dict[int, list[int]]) -> list[Process]:
    """Return the processes of one box."""
    return [processes[pid] for pid in descent(handle.pid, children) if pid in processes]


def own_memory(process: Process) -> int:
    """Return bytes of memory, each page divided by the number of processes that share it, without program files.

    A mapped file of the box counts here and again in `files`.
    """
    try:
        with open(f"/proc/{process.pid}/smaps_rollup") as file:
            own = [line for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:", "SwapPss:"))]
            return sum(int(line.split()[1]) * 1024 for line in own)
    except (OSError, ValueError):
        return process.memory


def page_tables(process: Process) -> int:
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{process.pid}/status") as file:
        return sum(int(line.split()[1]) * 1024 for line in file if line.startswith("VmPTE:"))
    return 0


def files(handle: Handle) -> tuple[int, int]:
    """Return bytes and number of the files in a box; zeros while its root is still the host's."""
    used = inodes = 0
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(f"/proc/{handle.pid}/root"), os.stat("/")):
            return 0, 0
    for folder in WRITABLE:
        with contextlib.suppress(OSError):
            path = f"/proc/{handle.pid}/root{folder}"
            status = os.statvfs(path)
            # In a box with an image, some of these are folders of the image, on the host's disk.
            if status.f_files and os.stat(path).st_dev != os.stat(f"/proc/{handle.pid}/root").st_dev:
                used += (status.f_blocks - status.f_bfree) * status.f_frsize
                inodes += status.f_files - status.f_ffree
    return used, inodes


def disk_usage(folder: str, limits: Limits) -> tuple[int, int]:
    """Bytes on the disk of the files in a folder, and how many files and folders, counted until one is over its limit.

    A path that is too long to be read counts as more than allowed.
    """
    used, entries, waiting = 0, 0, [os.fsencode(folder)]
    while waiting and used <= limits.disk and entries <= limits.inodes:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                entries += 1
                if len(entry.path) >= MAX_PATH_BYTES:
                    used = limits.disk + 1
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with contextlib.suppress(OSError):  # it was removed meanwhile
                        status = entry.stat(follow_symlinks=False)
                        used += status.st_blocks * 512 // max(status.st_nlink, 1)  # a file with two names counts once
    return used, entries


def deleted_bytes(handle: Handle, members: list[Process], limits: Limits) -> int:
    """Bytes on the disk of deleted files that a process of a box with an image still has open.

    More than MAX_DESCRIPTORS open files count as more than allowed, because reading them would take too long.
    """
    held: dict[int, int] = {}
    descriptors: list[str] = []
    for member in members:
        with contextlib.suppress(OSError):
            descriptors += (f"/proc/{member.pid}/fd/{name}" for name in os.listdir(f"/proc/{member.pid}/fd"))
        if len(descriptors) > MAX_DESCRIPTORS:
            return limits.disk + 1
    with contextlib.suppress(OSError):
        disk = os.stat(f"/proc/{handle.pid}/root").st_dev
        for descriptor in descriptors:
            with contextlib.suppress(OSError):  # it was closed meanwhile
                status = os.stat(descriptor)
                if status.st_dev == disk and status.st_nlink == 0:
                    held[status.st_ino] = status.st_blocks * 512
    return sum(held.values())


def sockets(handle: Handle) -> int:
    """Return how many sockets are open in a box, including those in transit in messages; 0 if the box shares the host's
    network."""
    with contextlib.suppress(OSError, ValueError):
        if not os.path.samestat(os.stat(f"/proc/{handle.pid}/ns/net"), os.stat("/proc/self/ns/net")):
            with open(f"/proc/{handle.pid}/net/sockstat") as file:
                return int(file.readline().split()[2])
    return 0


def queued_bytes(handle: Handle) -> int:
    """Return the bytes that wait in the buffers of a box's TCP and UDP sockets."""
    queued = 0
    for name in ("tcp", "tcp6", "udp", "udp6"):
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{handle.pid}/net/{name}") as file:
            next(file)
            for line in file:  # proc_pid_net(5): field 5 is tx_queue:rx_queue
                queued += sum(int(part, 16) for part in line.split()[4].split(":"))
    return queued


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[Watch]:
    """Check the boxes once a second in a thread while the body runs, unless another process does so."""
    watch, stop = Watch(folder), threading.Event()
    thread = threading.Thread(target=keep_watch, args=(watch, stop), name="watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()
        for path in folder.glob("env-*.json"):
            if (state := BoxState.read(path)) and not state.handle.alive():
                record_end(path, state)


def keep_watch(watch: Watch, stop: threading.Event, every: float = INTERVAL_SECONDS) -> None:
    """Check the boxes until `stop` is set."""
    # `open` would let other users read the file, and so lock it.
    with open(os.open(watch.folder / "watch.lock", os.O_CREAT | os.O_WRONLY, 0o600), "w") as lock:
        pause = every
        while not stop.wait(pause):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            began = time.thread_time()  # not wall time, which a box can prolong by keeping the host busy
            try:
                watch.check_boxes()
            except Exception:  # the watch must go on after any error
                log.exception("the check of the boxes failed")
            pause = min(max(every, PAUSE_FACTOR * (time.thread_time() - began)), MAX_INTERVAL_SECONDS)
