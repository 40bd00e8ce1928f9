"""The contract of the providers of boxes, the limits of a box, the provider `none`, and the choice by name."""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil  # type: ignore[import-untyped]

from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.sandbox.children import adopt, collect, end_with_this_process, family, release, spawn
from weavegen.sandbox.image_root import Root

if TYPE_CHECKING:
    from weavegen.sandbox.bubblewrap import Bubblewrap

MAIN = "import sys; sys.path.insert(0, sys.argv[1]); {}from weavegen.box.{} import main; main(int(sys.argv[2]))"
REAP = "from weavegen.box.orphans import reap_orphans; reap_orphans(); "


@dataclass(frozen=True)
class Limits:
    """Limits of an environment: of its box as a whole, unless stated otherwise."""

    seconds: float = 30.0
    """Wall time of an operation. A callback that takes longer gets an exception."""
    grace: float = 5.0
    """If an operation takes this many seconds longer than `seconds`, the environment is killed."""
    start: float = 20.0
    """Seconds within which a new environment must answer."""
    memory: int = 2**30
    """Bytes of memory of all processes, and of all files, which are kept in memory. Above it the box is killed."""
    address_space: int = 4 * 2**30
    """Bytes of address space per process. A request for more fails."""
    most_address_space: int = 128 * 2**30
    """What a process may raise its `address_space` to: Chromium reserves 105 GiB that it never uses."""
    processes: int = 128
    """Processes and threads together. A request for more fails."""
    cpu: float = 900.0
    """Seconds of processor time that may be used at once; refilled at `cpu_share`. Above it the box is killed."""
    cpu_share: float = 0.5
    """Processor seconds per second that may be used indefinitely."""
    cores: float = 2.0
    """Processors at a time, if control groups are available."""
    file_size: int = 256 * 2**20
    """Bytes of one file."""
    files: int = 512
    """Open files per process."""
    disk: int = 256 * 2**20
    """Bytes each in /app, /tmp, /dev/shm and NetHack's folder, which are in memory. Writing more fails."""
    sockets: int = 256
    """Open sockets of a box with its own network. Above it the box is killed."""
    inodes: int = 100_000
    """Files and folders in all folders of `disk` together. Above it the box is killed."""

    def of(self, op: str) -> "Limits":
        """Those of an operation. A bootstrap file has more time than what the model writes, also when it resumes."""
        return replace(self, seconds=self.seconds * (4 if op in ("bootstrap", "resume") else 1))


@dataclass(frozen=True)
class Layout:
    """Paths as a process in the box sees them."""

    app: str
    """The workspace."""
    code: str
    """The folder that `weavegen.box` can be imported from."""
    python: tuple[str, ...]
    """The command of an interpreter without third-party packages."""
    packages: str | None = None
    """The folder with the packages that blocks may import."""
    files: str | None = None
    """The folder with the initial files of the workspace."""


@dataclass(frozen=True)
class Box:
    """Describes a box for the provider that starts it."""

    workspace: Path
    """An existing folder of the host. `none` uses it; bubblewrap has /app in memory instead."""
    uid: int
    """The user id of this box alone, for providers that run as root."""
    log: Path
    """File for errors that occur before the command answers on its socket."""
    limits: Limits
    command: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    """All environment variables other than PATH, HOME and LANG."""
    folders: dict[str, Path] = field(default_factory=dict)
    """Folders to mount read-only in the workspace, by the name there."""
    descriptors: tuple[int, ...] = ()
    """Open files that the command inherits under the same numbers."""
    packages: Path | None = None
    """Folder with packages to mount read-only at `Layout.packages` (sandbox/packages.py)."""
    files: Path | None = None
    """Folder to mount read-only at `Layout.files` (sandbox/starting_files.py)."""
    network: str = "none"
    """`none`: a loopback of its own; `host`: the network of the host, with the host's loopback."""
    temporary: bool = False
    """Whether it is killed when the process that started it has ended, for whatever reason."""
    root: Root | None = None
    """An image as its root; None: the host's system, read-only, with `folders`, `packages` and `files`."""


def start_time(pid: int) -> float | None:
    """Return when a living process started; None if it does not live.

    In clock ticks since boot: psutil's time would change whenever the system's clock is corrected.
    """
    try:
        # proc_pid_stat(5): the name in parentheses may contain spaces; the state is field 3, the start time 22
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if fields[0] in b"ZX" else float(fields[19])
    except (OSError, IndexError):  # the process ended meanwhile
        return None


@dataclass(frozen=True)
class Handle:
    """A running box. Another process can make an equal handle from the same values."""

    pid: int
    """The process whose death ends everything in the box."""
    created: float
    """Its `start_time`, which tells it from a later process with the same pid."""
    groups: tuple[str, ...] = ()
    """The box's control groups (see groups.py)."""

    @classmethod
    def of(cls, pid: int) -> "Handle":
        """Make the handle of a process. Raises EnvironmentFailure if it has ended."""
        if (created := start_time(pid)) is None:
            raise EnvironmentFailure("the environment process died at once")
        return cls(pid, created)

    def alive(self) -> bool:
        return start_time(self.pid) == self.created

    def kill(self) -> None:
        """Kill the process, if it lives, with its descendants and its process group.

        Without isolation, a process that left both escapes. In bubblewrap, the kernel kills every process with the
        first one.
        """
        if not self.alive():
            return
        try:
            members = family(psutil.Process(self.pid))
        except psutil.NoSuchProcess:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended. Raises EnvironmentFailure after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                raise EnvironmentFailure(f"process {self.pid} has not ended within {seconds:g} seconds")
            time.sleep(0.002)
            collect()
        release(self.pid)


class NoSandbox:
    """The provider without isolation: processes run on the host as the user who started the worker.

    It is for platforms without bubblewrap, and used only when it is named. All traces share the host's network, so
    two of them can't serve the same port. A trace can read and delete every file that the user can.
    """

    name = "none"

    def layout(self, box: Box) -> Layout:
        """Return the paths as the command of a box sees them."""
        if box.root is not None:
            raise UsageError("images need isolation: unset WEAVEGEN_SANDBOX")
        code, python = Path(__file__).resolve().parents[2], getattr(sys, "_base_executable", sys.executable)
        inside = [None if folder is None else str(folder) for folder in (box.packages, box.files)]
        return Layout(str(box.workspace), str(code), (python,), *inside)

    def uid(self, trace_id: int, workspaces: Path) -> int:
        """Return the user id for a trace's box."""
        return os.getuid()

    def require(self) -> None:
        """Raise UsageError, with advice, if this host can't run such boxes; here it can."""

    def start(self, box: Box) -> Handle:
        """Start the command. Unless it is temporary, it outlives the caller. Raises EnvironmentFailure."""
        for name, folder in box.folders.items():
            link = box.workspace / name
            if not link.is_symlink():
                link.symlink_to(folder)
        limits, command = box.limits, list(box.command)
        if shutil.which("prlimit"):  # without --nproc, which would count all processes of the user
            numbers = (f"--as={limits.address_space}:", f"--fsize={limits.file_size}", f"--nofile={limits.files}")
            command = ["prlimit", *numbers, "--core=0", "--", *command]
        environ = {"PATH": os.defpath, "HOME": str(box.workspace), "LANG": "C.UTF-8", **box.environ}
        process = spawn(command, box.log, pass_fds=box.descriptors, cwd=box.workspace, env=environ)
        adopt(process.pid, process)
        if box.temporary:
            end_with_this_process(process.pid)
        return Handle.of(process.pid)


Sandbox: TypeAlias = "Bubblewrap | NoSandbox"
"""A provider of boxes. The attacks in tests/security/attacks check that its boxes hold."""


def provider(name: str) -> Sandbox:
    """Return the provider with this name (WEAVEGEN_SANDBOX). Raises UsageError."""
    from weavegen.sandbox.bubblewrap import Bubblewrap

    providers: dict[str, type[Sandbox]] = {"bubblewrap": Bubblewrap, "none": NoSandbox}
    if name not in providers:
        raise UsageError(f"there is no sandbox {name!r}: set WEAVEGEN_SANDBOX to one of {', '.join(providers)}")
    return providers[name]()


def start_main(sandbox: Sandbox, module: str, spec: dict[str, Any], box: Box, first: str = REAP) -> Handle:
    """Start a box whose command is `main` of a module of weavegen/box, which reads `spec` and the box's paths.

    They are passed in an unnamed file, because any process in the box could read a command line. `first` runs before
    the module is imported; by default, process 1 stays to reap orphans, and `main` runs in its child.
    """
    layout = sandbox.layout(box)
    with tempfile.TemporaryFile("w+") as file:
        json.dump({"app": layout.app, "packages": layout.packages, "files": layout.files, **spec}, file)
        file.seek(0)
        command = (*layout.python, "-sSPB", "-c", MAIN.format(first, module), layout.code, str(file.fileno()))
        return sandbox.start(replace(box, command=command, descriptors=(*box.descriptors, file.fileno())))
