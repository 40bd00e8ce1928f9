"""Where environment processes run: the contract of the providers, and their choice by name."""

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil  # type: ignore[import-untyped]

from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.sandbox.children import collect, release


@dataclass(frozen=True)
class Limits:
    """What one environment may use: the box as a whole, unless it says otherwise."""

    seconds: float = 30.0
    """Wall time of one operation; a callback that takes longer gets an exception."""
    grace: float = 5.0
    """After `seconds` and this the whole environment is killed: it no longer reacts to its own clock."""
    start: float = 20.0
    """Seconds within which a new environment must answer."""
    memory: int = 2**30
    """Bytes of memory: of all its processes together, and of its files, which lie in memory. Beyond: killed."""
    address_space: int = 4 * 2**30
    """Bytes of address space, of each process; what asks for more gets an error."""
    processes: int = 128
    """Processes and threads together; what asks for more gets an error."""
    cpu: float = 900.0
    """Seconds of processor time that it may use at once; they come back at `cpu_share`. Beyond: killed."""
    cpu_share: float = 0.5
    """Processor seconds a second that it may use for ever."""
    cores: float = 2.0
    """Processors at a time, where the kernel can be told so (control groups)."""
    file_size: int = 256 * 2**20
    """Bytes of one file."""
    files: int = 512
    """Open files, of each process."""
    disk: int = 256 * 2**20
    """Bytes in /app, /tmp, /dev/shm and NetHack's folder, each; a full one is an error. All are memory, too."""
    inodes: int = 100_000
    """Files and folders there, together. Beyond: killed."""


@dataclass(frozen=True)
class Layout:
    """Where a process in the box finds things."""

    app: str
    """The workspace."""
    code: str
    """The folder that `weavegen.box` can be imported from."""
    python: str
    """An interpreter without third-party packages."""


@dataclass(frozen=True)
class Box:
    """What a provider is to start."""

    workspace: Path
    """A folder of the host that exists. `none` works in it; a real box has its /app in memory instead."""
    uid: int
    """A user id of its own for this box, for providers that run as root."""
    command: tuple[str, ...]
    environ: dict[str, str]
    """All of the environment variables that it gets, besides PATH, HOME and LANG."""
    folders: dict[str, Path]
    """Folders to show, read-only, in the workspace under these names."""
    descriptors: tuple[int, ...]
    """Open files that the command inherits under the same numbers."""
    log: Path
    """Where complaints go that come before the command speaks for itself."""
    limits: Limits
    network: str = "none"
    """`none`: loopback of its own; `host`: what the host can reach, its own loopback included."""


def began(pid: int) -> float | None:
    """When a living process began, on a clock that nobody sets; None if it does not live."""
    if sys.platform != "linux":
        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
        except psutil.NoSuchProcess:
            return None
    try:
        # proc(5): the name, in parentheses, may hold anything; the state is field 3, the ticks since boot 22
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in b"ZX" else float(fields[19])
    except (OSError, IndexError):  # it ended while it was looked at
        return None


@dataclass(frozen=True)
class Handle:
    """A running box. It can be made again, by another process, from what it says."""

    pid: int
    """The process whose death ends everything in the box."""
    created: float
    """When that process began, so that another one with the same number is not taken for it."""
    groups: tuple[str, ...] = ()
    """The control groups that were made for it (see groups.py)."""

    @classmethod
    def of(cls, pid: int) -> "Handle":
        """Raises EnvironmentFailure if there is no such process."""
        created = began(pid)
        if created is None:
            raise EnvironmentFailure("the environment process died at once")
        return cls(pid, created)

    def alive(self) -> bool:
        return began(self.pid) == self.created

    def kill(self, *, family: bool = False) -> None:
        """Kill the process, if it lives; with its descendants and its process group, if these are asked for."""
        if not self.alive():
            return
        try:
            process = psutil.Process(self.pid)
            members = [process, *(process.children(recursive=True) if family else [])]
        except psutil.NoSuchProcess:
            return
        if family:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()

    def wait(self, seconds: float) -> None:
        """Until it has ended. Raises EnvironmentFailure if it has not by then."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                raise EnvironmentFailure(f"process {self.pid} has not ended within {seconds:g} seconds")
            time.sleep(0.002)
            collect()
        release(self.pid)


class Sandbox(Protocol):
    """One way of running a command away from everything else. `attacks` tell whether it keeps its word."""

    name: str

    def layout(self, workspace: Path) -> Layout:
        """Where the command of a box with this workspace will find things."""
        ...

    def start(self, box: Box) -> Handle:
        """Start the command so that it outlives the caller. Raises EnvironmentFailure."""
        ...

    def require(self) -> None:
        """Raise UsageError, in a line that says what to do, where this host can't run such boxes. Cheap."""
        ...

    def kill(self, handle: Handle, wait: float = 5.0) -> None:
        """End everything in the box, and wait until it has ended. Raises EnvironmentFailure if it does not."""
        ...

    def uid(self, trace_id: int, workspaces: Path) -> int:
        """The user id for a trace's box."""
        ...


def provider(name: str) -> Sandbox:
    """The sandbox that a setting names. Raises UsageError."""
    from weavegen.sandbox.bubblewrap import Bubblewrap
    from weavegen.sandbox.none import NoSandbox

    providers: dict[str, type[Bubblewrap] | type[NoSandbox]] = {"bubblewrap": Bubblewrap, "none": NoSandbox}
    if name not in providers:
        raise UsageError(f"there is no sandbox {name!r}: set WEAVEGEN_SANDBOX to one of {', '.join(providers)}")
    return providers[name]()
