"""Boxes made by bubblewrap: namespaces of their own, a read-only system, no capabilities, no way out."""

import contextlib
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import time
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import weavegen
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.sandbox import groups
from weavegen.sandbox.children import adopt, tail
from weavegen.sandbox.providers import Box, Handle, Layout
from weavegen.sandbox.seccomp import program

FIRST_UID = 1_900_000_000
"""Above what systemd hands out to containers, below 2**31."""
BOX = Path(weavegen.__file__).resolve().parent / "box"
"""The one folder of weavegen that is mounted inside."""
PREFIX = Path(os.path.realpath(sys.base_prefix))
PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
HOSTS = b"127.0.0.1 localhost\n::1 localhost\n"
NAMES = ("/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates")
"""What programs need to find hosts by name and to trust them; for boxes that share the host's network."""
SETTINGS = ("/etc/emacs", "/etc/nethack")
"""What Emacs and NetHack ask for when they start."""
NETHACK = "/var/games/nethack"
"""Its playground, which no environment variable moves."""
WRITABLE = ("/app", "/tmp", "/dev/shm", NETHACK)
"""What can be written to in a box. All of it lies in memory and is gone with the box."""
NICE = 5
"""Boxes give way to workers and database."""
FIRST_TO_GO = 800
"""oom_score_adj: where the host's memory runs out, boxes go first."""
TRIAL = 20.0
"""Seconds for the trial run of `possible`."""


class Bubblewrap:
    """Started by root: an unused real user id for each box, no user namespace, so that process limits count.

    Started by anyone else: a user namespace. Either way no capabilities, and none to be had.
    """

    name = "bubblewrap"

    def layout(self, workspace: Path) -> Layout:
        return Layout(app="/app", code="/opt/weave", python=str(PYTHON))

    def uid(self, trace_id: int, workspaces: Path) -> int:
        """Distinct among 100,000 consecutive traces of one installation, and from most other installations."""
        if os.getuid() != 0:
            return os.getuid()
        installation = zlib.crc32(os.fsencode(workspaces)) % 2_000
        return FIRST_UID + installation * 100_000 + trace_id % 100_000

    def require(self) -> None:
        possible()

    def start(self, box: Box) -> Handle:
        possible()
        for folder in (*map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")), PREFIX):
            if box.workspace.resolve().is_relative_to(folder.resolve()):
                raise UsageError(
                    f"WEAVEGEN_HOME lies in {folder}, which boxes can read: set it to a folder elsewhere"
                )
        name = f"weavegen-{zlib.crc32(os.fsencode(box.workspace.parent)):08x}-{box.workspace.name}"
        made = groups.create(name, box.limits)
        try:
            return self.start_in(box, made)
        except BaseException:
            groups.remove(made)
            raise

    def start_in(self, box: Box, made: tuple[str, ...]) -> Handle:
        """Start the box; the command begins when its process is in its groups."""
        with contextlib.ExitStack() as stack:
            info, info_end = os.pipe()
            stack.callback(os.close, info)
            gate_end, gate = os.pipe()
            stack.callback(os.close, gate)
            # Programs look their user up: NetHack crashes where there is none.
            passwd = f"weaver:x:{box.uid}:{box.uid}::/app:/bin/sh\n".encode()
            files = {"/etc/hosts": readable(HOSTS, stack), "/etc/passwd": readable(passwd, stack)}
            seccomp = readable(program() or b"", stack)
            inherited = (info_end, gate_end, *files.values(), seccomp, *box.descriptors)
            try:
                with box.log.open("ab") as log:
                    process = subprocess.Popen(
                        [*self.arguments(box, info_end, gate_end, files, seccomp), *box.command],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        pass_fds=inherited,
                        start_new_session=True,
                        cwd="/",
                        env={"PATH": os.environ.get("PATH", os.defpath)},
                    )
            finally:
                os.close(info_end)
                os.close(gate_end)
            try:
                handle = self.read_info(info, box)
            except EnvironmentFailure:
                process.kill()
                process.wait()
                raise
            handle = hold_back(handle, made)
            with contextlib.suppress(BrokenPipeError):  # it has died since: whoever calls it will see
                os.write(gate, b"!")
            adopt(handle.pid, process)
            return handle

    def read_info(self, info: int, box: Box) -> Handle:
        """bubblewrap writes the pid of the box's process 1 as soon as it exists."""
        text, deadline, poll = b"", time.monotonic() + box.limits.start, select.poll()
        poll.register(info, select.POLLIN)
        while not text.rstrip().endswith(b"}"):
            ready = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            data = os.read(info, 4096) if ready else b""
            if not data:
                raise EnvironmentFailure(f"bubblewrap did not start: {tail(box.log) or 'no word from it'}")
            text += data
        return Handle.of(int(json.loads(text)["child-pid"]))

    def kill(self, handle: Handle, wait: float = 5.0) -> None:
        """Process 1 takes everything in its process namespace with it."""
        handle.kill()
        handle.wait(wait)
        groups.remove(handle.groups)

    def arguments(self, box: Box, info: int, gate: int, files: dict[str, int], seccomp: int) -> list[str]:
        """The whole command line before the command; `files` are descriptors with the contents of files.

        bubblewrap tells `info` about its process 1, and runs the command when something can be read from `gate`.
        """
        limits = box.limits
        arguments = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if box.network == "none":
            arguments.append("--unshare-net")
        arguments += ["--unshare-cgroup-try", "--as-pid-1", "--new-session", "--hostname", "localhost"]
        arguments += ["--info-fd", str(info), "--block-fd", str(gate), "--seccomp", str(seccomp)]
        if os.getuid() == 0:
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
                arguments += ["--cap-add", capability]
            arguments[1:1] = ["--cap-drop", "ALL"]
        else:
            arguments += ["--unshare-user", "--cap-drop", "ALL"]
        arguments += system()
        arguments += ["--perms", "0755", "--dir", "/etc"]
        for name, descriptor in files.items():
            arguments += ["--perms", "0444", "--ro-bind-data", str(descriptor), name]
        for name in (*SETTINGS, *(NAMES if box.network == "host" else ())):
            arguments += ["--ro-bind-try", name, name]
        for folder in WRITABLE:
            arguments += ["--size", str(limits.disk), "--perms", "1777", "--tmpfs", folder]
        for folder in ("/opt", "/opt/weave", "/opt/weave/weavegen"):
            arguments += ["--perms", "0755", "--dir", folder]
        arguments += ["--ro-bind", str(BOX), "/opt/weave/weavegen/box"]
        for name, source in box.folders.items():
            arguments += ["--ro-bind", str(source), f"/app/{name}"]
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
        arguments += ["--clearenv"]
        environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/app", "LANG": "C.UTF-8", **box.environ}
        for name, value in environ.items():
            arguments += ["--setenv", name, value]
        arguments.append("--")
        if os.getuid() == 0:
            arguments += [
                "setpriv",
                f"--reuid={box.uid}",
                f"--regid={box.uid}",
                "--clear-groups",
                "--no-new-privs",
            ]
            arguments += ["--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
        arguments += ["prlimit", f"--nproc={limits.processes}", f"--as={limits.address_space}"]
        arguments += [
            f"--fsize={limits.file_size}",
            f"--nofile={limits.files}",
            "--sigpending=512",
            "--msgqueue=0",
        ]
        # 1 byte: no core file, and none through a pipe to a program of the host's either, as 0 would allow
        return [*arguments, "--memlock=65536", "--core=1", "--"]


@cache  # what is raised is not remembered
def possible() -> None:
    """Raise UsageError, in one line that says what to do, where no box can be made.

    The first time a box is made to see whether it can be: about 20 ms.
    """
    otherwise = "or give up isolation with WEAVEGEN_SANDBOX=none"
    if sys.platform != "linux":
        raise UsageError(f"bubblewrap needs Linux: use one, {otherwise}")
    tools = ["bwrap", "prlimit", *(["setpriv"] if os.getuid() == 0 else [])]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise UsageError(f"{' and '.join(missing)} not found: install bubblewrap and util-linux, {otherwise}")
    if (filter_ := program()) is None:
        raise UsageError(
            f"there is no filter of system calls for {platform.machine()}: use x86_64 or aarch64, {otherwise}"
        )
    with contextlib.ExitStack() as stack:
        seccomp = readable(filter_, stack)
        command = ["bwrap", *([] if os.getuid() == 0 else ["--unshare-user"])]
        command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--as-pid-1"]
        command += [
            "--cap-drop",
            "ALL",
            "--seccomp",
            str(seccomp),
            *system(),
            "--size",
            "65536",
            "--tmpfs",
            "/tmp",
        ]
        try:
            done = subprocess.run(
                [*command, "--", "true"], capture_output=True, text=True, timeout=TRIAL, pass_fds=[seccomp]
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"bubblewrap can't be run ({error}): install it anew, {otherwise}") from None
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UsageError(
            f"bubblewrap can't make a box here ({said}): allow unprivileged user namespaces "
            "(sysctl kernel.apparmor_restrict_unprivileged_userns=0, kernel.unprivileged_userns_clone=1), in a "
            f"container run it with --privileged, {otherwise}"
        )


def hold_back(handle: Handle, made: tuple[str, ...]) -> Handle:
    """Before the command begins: into its groups, behind workers and database, first to go for want of memory.

    Gives the handle back with the groups that it is in.
    """
    joined = groups.join(made, handle.pid)
    groups.remove(tuple(group for group in made if group not in joined))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, handle.pid, NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{handle.pid}/oom_score_adj").write_text(str(FIRST_TO_GO))
    return replace(handle, groups=joined)


def readable(data: bytes, stack: contextlib.ExitStack) -> int:
    """A file descriptor from which `data`, a few kilobytes at most, can be read; closed with the stack."""
    end, start = os.pipe()
    stack.callback(os.close, end)
    os.write(start, data)
    os.close(start)
    return end


def system() -> list[str]:
    """The system's programs and libraries, and the base interpreter, to be read only."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    if not PREFIX.is_relative_to("/usr"):
        for parent in reversed(PREFIX.parents[:-1]):
            arguments += ["--perms", "0755", "--dir", str(parent)]
        arguments += ["--ro-bind", str(PREFIX), str(PREFIX)]
    if Path("/nix/store").is_dir():
        arguments += ["--ro-bind", "/nix/store", "/nix/store"]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]
