"""The watch: what the kernel does not limit for a box as a whole, the host looks after, once a second.

A box over its limits is killed, and the reason written down beside its socket, where `client.Environment.dead`
finds it. One process of a host watches the boxes of an installation: the execute worker (tasks/execute.py).
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
EVERY = 1.0
"""Seconds between two looks; more where a look takes long."""
LEISURE = 10
"""A look may take this part of the time: with thousands of boxes they become rarer."""
SELDOM = 10.0
"""But never rarer than once in so many seconds."""
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class State:
    """What is kept of a box that was started, for whoever has to do with it later."""

    handle: Handle
    limits: Limits

    @classmethod
    def read(cls, path: Path) -> "State | None":
        """None if there is nothing that can be read."""
        try:
            kept = json.loads(path.read_text())
            handle = Handle(int(kept["pid"]), float(kept["created"]), tuple(map(str, kept["groups"])))
            return cls(handle, Limits(**kept["limits"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        new = path.with_suffix(".new")
        handle = self.handle
        kept = {"pid": handle.pid, "created": handle.created, "groups": handle.groups}
        new.write_text(json.dumps({**kept, "limits": asdict(self.limits)}))
        new.rename(path)


@dataclass(frozen=True)
class Process:
    """A process of the host, as proc(5) shows it."""

    pid: int
    parent: int
    cpu: float
    """Seconds."""
    age: float
    """Seconds since it began."""
    threads: int
    memory: int
    """Bytes in memory, those that it shares included."""


@dataclass(frozen=True)
class Account:
    """What a box has used of its processor time."""

    at: float
    cpu: dict[int, float]
    """Seconds by process, at the last look."""
    counted: float | None
    """Seconds, as its control group counts them."""
    debt: float = 0.0
    """Seconds used and not yet given back."""


class Watch:
    """Looks at all boxes whose states lie in a folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.accounts: dict[Path, tuple[Handle, Account]] = {}

    def look(self) -> list[Path]:
        """Kill what is over its limits, and say whose states these are; put away the groups of what has ended."""
        states = [(path, state) for path in self.folder.glob("env-*.json") if (state := State.read(path))]
        living = [(path, state) for path, state in states if state.handle.alive()]
        for path, state in states:
            if not state.handle.alive():
                note_death(path, state)
        self.accounts = {path: self.accounts[path] for path, _ in living if path in self.accounts}
        killed = []
        processes = table() if living else {}
        children = by_parent(processes)
        for path, state in living:
            members = [processes[pid] for pid in descent(state.handle.pid, children) if pid in processes]
            reason = self.over(path, state, members)
            if reason is not None and state.handle.alive():
                log.warning("%s is killed: %s", path.stem, reason)
                path.with_suffix(".why").write_text(reason)
                state.handle.kill(family=True)
                killed.append(path)
        return killed

    def over(self, path: Path, state: State, members: list[Process]) -> str | None:
        """Which limit a box is over, in words."""
        limits, handle = state.limits, state.handle
        known = self.accounts.get(path)
        account = spent(known[1] if known and known[0] == handle else None, handle, members, limits)
        self.accounts[path] = handle, account
        if account.debt > limits.cpu:
            return f"it used {limits.cpu:g} seconds of processor time, and {limits.cpu_share:g} a second besides"
        threads = sum(member.threads for member in members)
        if threads > limits.processes + 8:
            return f"it has {threads} processes and threads, {limits.processes} are allowed"
        used, inodes = files(handle)
        if inodes > limits.inodes:
            return f"it has {inodes:,} files and folders, {limits.inodes:,} are allowed"
        if groups.limits_memory(handle.groups, limits):
            return None
        memory = used + sum(member.memory for member in members)
        if memory > limits.memory:  # pages that several processes share were counted several times: look closer
            memory = used + sum(own_memory(member) for member in members)
        if memory > limits.memory:
            return too_much_memory(limits)
        return None


def too_much_memory(limits: Limits) -> str:
    return f"it used more than {limits.memory / 2**20:,.0f} MiB of memory, files included"


def note_memory(why: Path, handle: Handle, limits: Limits) -> None:
    """Of a box that has ended: write down that the kernel did it for want of memory, where no reason is known."""
    if not why.exists() and groups.killed_for_memory(handle.groups):
        why.write_text(too_much_memory(limits))


def note_death(path: Path, state: State) -> None:
    """Of a box that has ended: write down why, if that is known; remove its groups."""
    note_memory(path.with_suffix(".why"), state.handle, state.limits)
    groups.remove(state.handle.groups, wait=0.0)


def spent(before: Account | None, handle: Handle, members: list[Process], limits: Limits) -> Account:
    """The account after this look.

    What processes used that began and ended between two looks is known to control groups only. Without one, those
    that are seen stand for them: each counts as if it had run for the whole time as it has since it began.
    """
    now, counted = time.monotonic(), groups.cpu_seconds(handle.groups)
    cpu = {member.pid: member.cpu for member in members}
    if before is None:
        return Account(now, cpu, counted)
    between = now - before.at
    if counted is not None and before.counted is not None:
        used = counted - before.counted
    else:
        old = [one for one in members if one.pid in before.cpu]
        new = [one for one in members if one.pid not in before.cpu]
        used = sum(max(one.cpu - before.cpu[one.pid], 0.0) for one in old)
        used += sum(one.cpu / one.age * max(between, one.age) for one in new)
    debt = max(before.debt + used - limits.cpu_share * between, 0.0)
    return replace(before, at=now, cpu=cpu, counted=counted, debt=debt)


def table() -> dict[int, Process]:
    """All processes of the host, by pid."""
    found, now = {}, time.clock_gettime(time.CLOCK_BOOTTIME)
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"/proc/{entry.name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended
            if len(fields) < 22:
                continue  # in this very moment
            # fields 4, 14, 15, 20, 22 and 24 of proc(5); the split begins with field 3
            cpu = (int(fields[11]) + int(fields[12])) / TICK
            pid = int(entry.name)
            age = max(now - int(fields[19]) / TICK, 1 / TICK)
            found[pid] = Process(pid, int(fields[1]), cpu, age, int(fields[17]), int(fields[21]) * PAGE)
    return found


def by_parent(processes: dict[int, Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    return children


def descent(pid: int, children: dict[int, list[int]]) -> list[int]:
    """A process and all its descendants; what a box's process 1 starts can't leave its family."""
    found = [pid]
    for member in found:
        found += children.get(member, [])
    return found


def family(pid: int, processes: dict[int, Process]) -> list[int]:
    """Those of `processes` that are a process or its descendants."""
    return [member for member in descent(pid, by_parent(processes)) if member in processes]


def own_memory(process: Process) -> int:
    """Bytes, each page divided by the number of processes that share it; without programs and libraries.

    A file of the box that is mapped counts here, and in `files` once more.
    """
    own = 0
    try:
        with open(f"/proc/{process.pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith(("Pss_Anon:", "Pss_Shmem:", "SwapPss:")):
                    own += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return process.memory
    return own


def files(handle: Handle) -> tuple[int, int]:
    """Bytes and number of the files in a box; none while it is being made, and its root is still the host's."""
    used = inodes = 0
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(f"/proc/{handle.pid}/root"), os.stat("/")):
            return 0, 0
    for folder in WRITABLE:
        with contextlib.suppress(OSError):
            found = os.statvfs(f"/proc/{handle.pid}/root{folder}")
            if found.f_files:
                used += (found.f_blocks - found.f_bfree) * found.f_frsize
                inodes += found.f_files - found.f_ffree
    return used, inodes


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[Watch]:
    """Look once a second, in a thread, for as long as the body runs; unless another process does it already."""
    watch, over = Watch(folder), threading.Event()
    thread = threading.Thread(target=keep_watch, args=(watch, over), name="watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
        for path in folder.glob("env-*.json"):
            if (state := State.read(path)) and not state.handle.alive():
                note_death(path, state)


def keep_watch(watch: Watch, over: threading.Event, every: float = EVERY) -> None:
    """Look until it is over."""
    # Nobody else may hold it: `open` would let other users read it.
    with open(os.open(watch.folder / "watch.lock", os.O_CREAT | os.O_WRONLY, 0o600), "w") as lock:
        pause = every
        while not over.wait(pause):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            began = time.thread_time()  # not wall time: a box that keeps the host busy must not gain by it
            try:
                watch.look()
            except Exception:  # whatever it is: a watch that ends is none
                log.exception("the boxes could not be looked at")
            pause = min(max(every, LEISURE * (time.thread_time() - began)), SELDOM)
