"""Runs a command as root of a user namespace with 65,536 ids, which is what the files of images need.

The host's root gives the namespace ids that nobody else has; an ordinary user gives those of /etc/subuid, by newuidmap.
Run as a script, so that no worker forks itself: the argument is a Launch as JSON. Standard library alone.
"""

import contextlib
import ctypes
import json
import os
import pwd
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FIRST_ID = 1_899_900_000
"""First id of the namespaces that root makes: below those of the other boxes (bubblewrap.py)."""
IDS = 65_536
STAGE = "/mnt"
"""Where the namespace sees the folders that it was given, each by its name. It exists on every Linux (hier(7))."""
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def command(
    argv: Sequence[str],
    folders: Mapping[str, Path],
    layers: str | None = None,
    programs: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs `argv` as root of a new user namespace.

    `folders`: what it finds in STAGE, by name. `layers`: with the folders `layers` and `changes`, an overlay of these
    layers (`lowerdir` of mount(8), relative to `layers`) is at STAGE/root; changes go to `changes/upper`. `programs`:
    folders of the overlay in which the layers of the image are above those of further folders. `limits`: names of
    RLIMIT_*, of the user in this namespace alone.
    """
    launch = {"argv": list(argv), "folders": {name: str(path) for name, path in folders.items()}, "layers": layers}
    return [
        sys.executable,
        "-ISs",
        __file__,
        json.dumps(launch | {"programs": programs, "limits": limits or {}, "environ": environ}),
    ]


def unavailable() -> str | None:
    """Why this user can't make such a namespace, with advice; None if they can."""
    if os.getuid() == 0:
        return None
    if shutil.which("newuidmap") is None:
        return "newuidmap not found: install uidmap"
    user = pwd.getpwuid(os.getuid()).pw_name
    for file in ("/etc/subuid", "/etc/subgid"):
        if subordinate_ids(file, user) is None:
            advice = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
            return f"{file} gives {user} no {IDS:,} ids: run `{advice}` as root"
    return None


def subordinate_ids(file: str, user: str) -> int | None:
    """The first of the ids that a file such as /etc/subuid gives a user; None without enough of them."""
    with contextlib.suppress(OSError, ValueError), open(file) as lines:
        for name, first, count in (line.strip().split(":") for line in lines if line.count(":") == 2):
            if name in (user, str(os.getuid())) and int(count) >= IDS - 1:
                return int(first)
    return None


def owner(identity: int) -> int:
    """The id of the host that an id in the namespaces of root stands for; -1, which changes nothing, for others."""
    return FIRST_ID + identity if os.getuid() == 0 else -1


def main(text: str) -> None:
    """Enter the namespaces, mount what the launch names, and become its command."""
    launch = json.loads(text)
    begin(launch["folders"])
    if launch["layers"] is not None:
        os.chdir(f"{STAGE}/layers")  # the options of a mount have room for one page
        mount_overlay("", launch["layers"].split(":"))
        for folder in launch["programs"]:
            layers = launch["layers"].split(":")
            layers.sort(key=lambda layer: layer.startswith(f"{STAGE}/agent"))  # the image's first; it keeps their order
            if found := [layer + folder for layer in layers if os.path.isdir(layer + folder)]:
                mount_overlay(folder, found)
    os.chdir("/")
    for name, value in launch["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    environ = os.environ if launch["environ"] is None else launch["environ"]
    os.execvpe(launch["argv"][0], launch["argv"], environ)


def begin(folders: Mapping[str, str]) -> None:
    """Enter the namespaces, as their root, with these folders below STAGE."""
    if os.getuid() == 0:  # root reads the folders whatever is above them, and its namespace may not
        call("unshare", CLONE_NEWNS)
        stage(folders)
        enter(CLONE_NEWUSER)
        call("unshare", CLONE_NEWNS)
    else:
        enter(CLONE_NEWUSER | CLONE_NEWNS)
        stage(folders)


def mount_overlay(folder: str, layers: Sequence[str]) -> None:
    """Mount layers at a folder of STAGE/root. Changes go below STAGE/changes/upper."""
    changes = {name: f"{STAGE}/changes/{name}{folder.replace('/', '%')}" for name in ("upper", "work")}
    for place in changes.values():
        os.makedirs(place, mode=0o755, exist_ok=True)
    options = f"lowerdir={':'.join(layers)},upperdir={changes['upper']},workdir={changes['work']},userxattr"
    mount("overlay", f"{STAGE}/root{folder}", "overlay", 0, options)


def stage(folders: Mapping[str, str]) -> None:
    """Mount the folders below STAGE, in a mount namespace of this process."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    sources = {name: os.open(path, os.O_PATH) for name, path in folders.items()}  # some may be below STAGE
    mount("stage", STAGE, "tmpfs", 0, "mode=755")
    os.mkdir(f"{STAGE}/root")
    for name, source in sources.items():
        os.mkdir(f"{STAGE}/{name}")
        mount(f"/proc/self/fd/{source}", f"{STAGE}/{name}", None, MS_BIND | MS_REC)
        os.close(source)


def enter(flags: int) -> None:
    """Enter a user namespace as its root. Another process writes its ids, as only one outside it may."""
    ready, entered = os.pipe()
    done, mapped = os.pipe()
    parent = os.getpid()
    helper = os.fork()
    if helper == 0:
        os.close(entered)
        os.close(done)
        code = 1
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            os.read(ready, 1)
            map_ids(parent)
            code = 0
        os._exit(code)
    os.close(ready)
    os.close(mapped)
    call("unshare", flags)
    os.write(entered, b"!")
    os.close(entered)
    os.read(done, 1)
    os.close(done)
    if os.waitpid(helper, 0)[1] != 0:
        sys.exit("the ids of a user namespace can't be mapped: check /etc/subuid and /etc/subgid")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def map_ids(pid: int) -> None:
    """Give a process, which has just entered its user namespace, ids there."""
    if os.getuid() == 0:
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(f"0 {FIRST_ID} {IDS}")
        return
    user = pwd.getpwuid(os.getuid()).pw_name
    for program, table, own in (("newuidmap", "/etc/subuid", os.getuid()), ("newgidmap", "/etc/subgid", os.getgid())):
        first = subordinate_ids(table, user)
        numbers = ["0", str(own), "1", "1", str(first), str(IDS - 1)]
        subprocess.run([program, str(pid), *numbers], check=True)


def mount(source: str, target: str, type: str | None, flags: int, options: str | None = None) -> None:
    """mount(2). Raises OSError."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, type, options)]
    call("mount", *encoded[:3], ctypes.c_ulong(flags), encoded[3])


def call(name: str, *arguments: object) -> None:
    """Call a function of libc. Raises OSError."""
    function: Callable[..., int] = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1])
