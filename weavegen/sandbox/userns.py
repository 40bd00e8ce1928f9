"""Runs a command as root of a user namespace with 65,536 ids, which is what the files of images need.

The host's root gives the namespace ids that nobody else has; an ordinary user gives those of /etc/subuid, by newuidmap.
A separate process runs `launch`, because a worker has threads and can't enter a namespace. Every box with an image
waits for that process, so modules that it does not need are imported only where they are used.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False  # the name that type checkers know, without importing typing
if TYPE_CHECKING:
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
) -> list[str]:
    """The command line that runs `argv` as root of a new user namespace.

    `folders`: what it finds in STAGE, by name. `layers`: with the folders `layers` and `changes`, an overlay of these
    layers (`lowerdir` of mount(8), relative to `layers`) is at STAGE/root; changes go to `changes/upper`. `programs`:
    folders of the overlay in which the layers of the image are above those of further folders. `limits`: values of
    RLIMIT_* by name, which count the user in this namespace only. Everybody can read what is given here.
    """
    import shutil

    places = {name: str(path) for name, path in folders.items()}
    program = shutil.which(argv[0]) or argv[0]
    given = ([program, *argv[1:]], places, layers, list(programs), dict(limits or {}))
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import userns; userns.launch{given!r}"
    return [sys.executable, "-ISsc", code]


def unavailable() -> str | None:
    """Why this user can't make such a namespace, with advice; None if they can."""
    import pwd
    import shutil

    if os.getuid() == 0:
        return None
    if shutil.which("newuidmap") is None:
        return "newuidmap not found: install uidmap"
    user = pwd.getpwuid(os.getuid()).pw_name
    for file in ("/etc/subuid", "/etc/subgid"):
        if subordinate_ids(file, user) is None:
            advice = f"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
            return f"{file} does not give {user} {IDS:,} ids: run `{advice}` as root"
    return None


def subordinate_ids(file: str, user: str) -> int | None:
    """The first of the ids that a file such as /etc/subuid gives a user; None without enough of them."""
    import contextlib

    with contextlib.suppress(OSError, ValueError), open(file) as lines:
        for name, first, count in (line.strip().split(":") for line in lines if line.count(":") == 2):
            if name in (user, str(os.getuid())) and int(count) >= IDS - 1:
                return int(first)
    return None


def owner(identity: int) -> int:
    """The host's id for an id in the namespaces that root makes; -1, which chown ignores, for other users."""
    return FIRST_ID + identity if os.getuid() == 0 else -1


def launch(
    argv: list[str], folders: dict[str, str], layers: str | None, programs: list[str], limits: dict[str, int]
) -> None:
    """Enter the namespaces, mount what `command` was given, and become its command."""
    import resource  # before `begin`: from then on, this interpreter's folder may be out of reach

    begin(folders)
    if layers is not None:
        os.chdir(f"{STAGE}/layers")  # the options of a mount must fit into one page
        names = layers.split(":")
        mount_overlay("", names)
        names.sort(key=lambda name: name.startswith(f"{STAGE}/agent"))  # the image's first; the sort is stable
        for folder in programs:  # skips links that an agent put in place of a folder: they lead out of the layer
            own = [name for name in names if os.path.realpath(name + folder) == os.path.realpath(name) + folder]
            if found := [name + folder for name in own if os.path.isdir(name + folder)]:
                mount_overlay(folder, found)
    os.chdir("/")
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    os.execv(argv[0], argv)


def begin(folders: Mapping[str, str]) -> None:
    """Enter the namespaces, as their root, with these folders below STAGE."""
    if os.getuid() == 0:  # root can read folders below closed ones, and its namespace may not
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
    """Mount the folders, or files, below STAGE, in a mount namespace of this process."""
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    sources = {name: os.open(path, os.O_PATH) for name, path in folders.items()}  # some may be below STAGE
    mount("stage", STAGE, "tmpfs", 0, "mode=755")
    os.mkdir(f"{STAGE}/root")
    for name, source in sources.items():
        if os.path.isdir(f"/proc/self/fd/{source}"):
            os.mkdir(f"{STAGE}/{name}")
        else:
            os.close(os.open(f"{STAGE}/{name}", os.O_CREAT))
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
        try:
            os.read(ready, 1)
            map_ids(parent)
        except BaseException:  # noqa: BLE001 - this process must not return
            os._exit(1)
        os._exit(0)
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
    import pwd
    import subprocess

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
