"""The targets of the attacks in the self-check, and the state of the host that is compared before and after."""

import compileall
import contextlib
import os
import platform
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.security.attacks.attack import family
from tests.support.ports import free_port
from weavegen.config import Config
from weavegen.folders import private
from weavegen.kernel.steps import Execute
from weavegen.sandbox import groups
from weavegen.sandbox.environment import Environment, remove
from weavegen.sandbox.providers import provider
from weavegen.sandbox.seccomp import CLONE, CLONE3, REFUSED
from weavegen.sandbox.starting_files import PROJECT
from weavegen.sandbox.watch import process_table, watching

NEIGHBOUR, FIRST = 1, 2
"""Numbers of the arena's traces."""
SETTINGS = (
    "kernel/core_pattern", "kernel/sysrq", "kernel/hostname", "kernel/domainname", "kernel/panic",
    "kernel/pid_max", "vm/overcommit_memory", "vm/drop_caches", "net/ipv4/ip_forward", "fs/suid_dumpable",
)  # fmt: skip
"""Kernel settings below /proc/sys."""
PLACES = ("/", "/dev", "/dev/shm", "/dev/mqueue", "/etc", "/root", "/run", "/tmp", "/usr", "/usr/bin", "/var/tmp")
"""Folders of the host in which no file with the mark may appear."""
LISTS = ("/proc/net/unix", "/proc/keys", "/proc/key-users", "/proc/modules", "/proc/swaps", "/proc/self/mountinfo")
"""Lists of the kernel in which no line with the mark may appear."""
BUSY = ("/run/", "/var/lib/", "/media/", "/snap/")
"""Mount points that other programs of the host may add meanwhile."""
EMPTY = "def action_nothing(self):\n    return 1\n\nself.add_action('Nothing', action_nothing)\n"


@dataclass
class Arena:
    """The targets of the attacks, and what is known about the host."""

    config: Config
    folder: Path
    mark: str
    secret: str
    victim: "subprocess.Popen[bytes]"
    listeners: dict[str, socket.socket]
    datagrams: socket.socket
    neighbour: Environment
    before: dict[str, Any] = field(default_factory=dict)
    traces: int = FIRST

    def told(self) -> dict[str, Any]:
        """What the attacker knows: everything that may help it."""
        which = 0 if platform.machine() == "x86_64" else 1
        numbers = {name: number[which] for name, number in REFUSED.items() if number[which] is not None}
        tcp = {name: one.getsockname()[:2] for name, one in self.listeners.items() if one.family != socket.AF_UNIX}
        return {
            "mark": self.mark,
            "secret": str(self.folder / "secret"),
            "home": str(self.config.home),
            "victim": self.victim.pid,
            "worker": os.getpid(),
            "tcp": tcp,
            "abstract": self.mark,
            "socket": str(self.folder / "listener"),
            "udp": self.datagrams.getsockname(),
            "neighbour": [str(self.neighbour.socket_path), str(self.neighbour.workspace), self.neighbour.handle.pid],
            "port": free_port(),
            "numbers": {**numbers, "clone": CLONE[which], "clone3": CLONE3},
        }

    def state(self) -> dict[str, Any]:
        """The state of the host that an attack could have changed."""
        names = {place: os.listdir(place) for place in PLACES if os.access(place, os.R_OK)}
        code = [*(PROJECT / "bootstraps").rglob("*"), *(PROJECT / "weavegen" / "box").rglob("*.py")]
        return {
            "mounts": mounts(),
            "names": (socket.gethostname(), os.uname().nodename, os.uname().version),
            "settings": {name: read(f"/proc/sys/{name}") for name in SETTINGS},
            "shared memory": self.shared_memory(),
            "marks": {place: [name for name in found if self.mark in name] for place, found in names.items()},
            "lists": {place: read(place).count(self.mark) for place in LISTS},
            "files": self.files(),
            "secret": read(self.folder / "secret"),
            "code": {str(path): (path.stat().st_mtime_ns, path.stat().st_mode) for path in code},
            "victim": self.victim.poll(),
            "neighbour": self.neighbour.handle.alive(),
            "processes": sorted(self.processes()),
            "groups": self.groups(),
            "terminal": os.isatty(0) and os.tcgetpgrp(0),
        }  # fmt: skip

    def files(self) -> list[str]:
        """Files of the home, without the locks of the traces: the worker makes one for each trace that it runs."""
        locks = set(self.config.runtime.glob("trace-*.lock"))
        return sorted(str(path) for path in self.config.home.rglob("*") if path not in locks)

    def shared_memory(self) -> list[str]:
        """Shared memory segments of the boxes' users."""
        mine = set(map(str, self.uids()))
        return [row for row in read("/proc/sysvipc/shm").splitlines()[1:] if row.split()[7] in mine]

    def uids(self) -> set[int]:
        sandbox = provider(self.config.sandbox)
        return {sandbox.uid(trace, self.config.workspaces) for trace in range(FIRST, self.traces + 1)} - {os.getuid()}

    def groups(self) -> list[str]:
        """Control groups of the arena's boxes without the neighbour's. Other installations may have groups too."""
        theirs = {Path(one).name for one in self.neighbour.handle.groups}
        family = {name.rpartition("-")[0] for name in theirs}
        found = [group for parent in groups.parents() for group in parent.glob("weavegen-*")]
        return sorted(
            str(group) for group in found if group.name not in theirs and group.name.rpartition("-")[0] in family
        )

    def processes(self) -> list[int]:
        """Processes of the arena's boxes without the neighbour's."""
        found = process_table()
        boxes = set(family(self.neighbour.handle.pid, found))
        uids = self.uids()
        mine = []
        for pid in found:
            if pid in boxes or pid == self.victim.pid:
                continue
            with contextlib.suppress(OSError):
                marked = self.mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
                if marked or os.stat(f"/proc/{pid}").st_uid in uids:
                    mine.append(pid)
        return mine

    def calls(self) -> list[str]:
        """Listeners that received a connection."""
        reached = []
        for name, one in self.listeners.items():
            with contextlib.suppress(BlockingIOError):
                one.accept()[0].close()
                reached.append(name)
        with contextlib.suppress(BlockingIOError):
            self.datagrams.recv(100)
            reached.append("udp")
        return reached


def read(path: str | Path) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        return type(error).__name__


@contextlib.contextmanager
def arena(config: Config) -> Iterator[Arena]:
    """An arena in a folder of its own, without data of the installation."""
    mark, secret = f"wga{secrets.token_hex(6)}", f"secret-{secrets.token_hex(8)}"
    variable = f"WEAVEGEN_{mark.upper()}"
    # Otherwise bytecode that other processes of this host write meanwhile looks like a change made by an attack.
    compileall.compile_dir(PROJECT / "bootstraps", quiet=2)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weavegen-arena-")))
        folder.chmod(0o755)
        config = replace(config, home=folder / "home")
        config.home.mkdir(mode=0o711)
        (folder / "secret").write_text(secret)
        (folder / "secret").chmod(0o666)  # only the box protects it
        os.environ[variable] = secret
        stack.callback(os.environ.pop, variable)
        victim = subprocess.Popen([mark, "3600"], executable=shutil.which("sleep"))
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        listeners = {name: socket.create_server(("127.0.0.1", 0)) for name in ("database", "broker", "model pool")}
        with contextlib.suppress(OSError):
            listeners["ipv6"] = socket.create_server(("::1", 0), family=socket.AF_INET6)
        for name, address in (("unix socket", str(folder / "listener")), ("abstract unix socket", f"\0{mark}")):
            listeners[name] = one = socket.socket(socket.AF_UNIX)
            one.bind(address)
            one.listen()
        (folder / "listener").chmod(0o777)
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", 0))
        for one in (*listeners.values(), datagrams):
            stack.callback(one.close)
            one.setblocking(False)
        stack.enter_context(watching(private(config.runtime)))
        neighbour = Environment.start(config, NEIGHBOUR)
        stack.callback(remove, config, NEIGHBOUR)
        hide = f"open('/app/secret', 'w').write({secret!r})\n" + EMPTY
        neighbour.execute(1, Execute(op="bootstrap", source=hide))
        yield Arena(config, folder, mark, secret, victim, listeners, datagrams, neighbour)


def mounts() -> list[str]:
    """Mount points of the host: field 5 of proc(5)'s mountinfo."""
    rows = read("/proc/self/mountinfo").splitlines()
    return [row for row in rows if not row.split()[4].startswith(BUSY)]
