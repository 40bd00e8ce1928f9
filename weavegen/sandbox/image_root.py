"""A box whose root is an image: the mounts, the interpreter from the host, and the arguments of bubblewrap.

The image's layers are mounted read-only below the box's own writable layer, in a separate user namespace in which the
box has the ids and the capabilities of a container. weavegen's code runs on the host's interpreter, which is mounted
beside the image with its own libraries, so that the image may have another Python, or none.
"""

import contextlib
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from weavegen.sandbox import userns

PREFIX = Path(os.path.realpath(sys.base_prefix))
PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
"""The interpreter that runs boxes, and its folder."""
HOST = "/opt/weave/host"  # place in the box of the host's programs that run the interpreter
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT",
)  # fmt: skip
"""What root in a box may do with the box's own files and processes. A container has these and two more by default."""
ALLOWED_CALLS = frozenset({
    "chroot", "inotify_init", "inotify_init1", "inotify_add_watch", "io_setup", "kcmp", "mbind", "memfd_create",
    "mq_open", "msgget", "personality", "process_vm_readv", "process_vm_writev", "ptrace", "semget", "set_mempolicy",
    "shmget",
})  # fmt: skip
"""Calls that other boxes refuse, and that servers and debuggers need. They can reach only the box's own namespaces and
the files of its overlay."""


@dataclass(frozen=True)
class Root:
    """The root file system of a box, for the provider that starts it."""

    store: Path
    """The folder with the layers (sandbox/images.py)."""
    layers: str
    """`lowerdir` of mount(8), relative to `store`; further folders as STAGE/NAME."""
    changes: Path
    """Folder for what the box changes, on the host's disk."""
    environ: dict[str, str]
    """All environment variables of the image and the task."""
    workdir: str
    user: str = ""
    """Name or number; empty: root."""
    folders: dict[str, Path] = field(default_factory=dict)
    """Further folders that are layers, by NAME."""
    programs: tuple[str, ...] = ()
    """Folders in which the image's files have priority over those of further layers (userns.py)."""

    def prepare(self) -> None:
        """Make the folder for changes, which belongs to root of the namespace."""
        self.changes.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chown(self.changes, userns.owner(0), userns.owner(0))

    def command(self, bubblewrap: list[str], sources: list[Path], limits: dict[str, int]) -> list[str]:
        """The command line that mounts the root and then starts bubblewrap with these arguments and RLIMIT_* `limits`.

        `sources`: host paths that bubblewrap mounts; it finds them as STAGE/source0 and so on.
        """
        folders = {"layers": self.store, "changes": self.changes, **self.folders}
        folders |= {f"host{number}": path for number, path in enumerate(mounted())}
        folders |= {f"source{number}": path for number, path in enumerate(sources)}
        return userns.command(bubblewrap, folders, self.layers, self.programs, limits)

    def mounts(self) -> list[str]:
        """Arguments of bubblewrap for the root and the interpreter."""
        arguments = ["--bind", f"{userns.STAGE}/root", "/", "--proc", "/proc", "--dev", "/dev"]
        arguments += ["--perms", "0755", "--tmpfs", "/opt/weave"]
        for number, path in enumerate(mounted()):
            arguments += ["--ro-bind", f"{userns.STAGE}/host{number}", f"{HOST}{path}"]
        return arguments


@cache
def mounted() -> tuple[Path, ...]:
    """The folders of the host that the interpreter needs: its prefix, and those of its libraries."""
    needed = [PREFIX, *(Path(path) for path in library_path()), Path(loader()).parent]
    tops = {Path("/usr") if path.is_relative_to("/usr") else path for path in needed}
    return tuple(sorted(path for path in tops if not any(path != top and path.is_relative_to(top) for top in tops)))


@cache
def loader() -> str:
    """The program that loads the interpreter's libraries (ld.so(8)), without links."""
    with PYTHON.open("rb") as file:
        found = re.search(rb"/[\w./-]*/ld-[\w.-]+\.so[\w.]*", file.read(65_536))
    return os.path.realpath(found[0].decode() if found else "/lib64/ld-linux-x86-64.so.2")


@cache
def library_path() -> tuple[str, ...]:
    """The folders with the libraries that this process has loaded, those of the interpreter's own prefix first."""
    names = (line.partition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines())
    libraries = (name for name in names if re.search(r"\.so[.\d]*\Z", name) and "lib-dynload" not in name)
    folders = (os.path.dirname(os.path.realpath(f"/{name}")) for name in libraries if "site-packages" not in name)
    return tuple(dict.fromkeys([str(PREFIX / "lib"), *folders]))


def interpreter() -> tuple[str, ...]:
    """The command that starts the interpreter in a box, whose root has other libraries."""
    path = ":".join(HOST + folder for folder in library_path())
    return HOST + loader(), "--argv0", f"{HOST}{PYTHON}", "--library-path", path, f"{HOST}{PYTHON}"


def remove(folder: Path) -> None:
    """Delete a folder whose files may belong to any id of the user namespaces."""
    if not folder.exists():
        return
    if os.getuid() == 0:  # shutil.rmtree fails where folders are nested deep
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL)
        return
    with contextlib.suppress(OSError):
        place = f"{userns.STAGE}/folder"
        subprocess.run(userns.command(["find", place, "-mindepth", "1", "-delete"], {"folder": folder}))
        folder.rmdir()
