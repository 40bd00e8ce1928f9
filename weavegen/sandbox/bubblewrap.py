"""The provider bubblewrap: boxes with their own namespaces, a read-only system and no capabilities."""

import compileall
import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import time
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.sandbox import groups
from weavegen.sandbox.children import adopt, end_with_this_process, spawn, tail
from weavegen.sandbox.image_root import ALLOWED_CALLS, CAPABILITIES, PREFIX, PYTHON, interpreter
from weavegen.sandbox.providers import Box, Handle, Layout
from weavegen.sandbox.seccomp import program
from weavegen.sandbox.userns import STAGE

FIRST_UID = 1_900_000_000  # above the user ids that systemd gives to containers, below 2**31
BOX_FOLDER = Path(__file__).resolve().parents[1] / "box"  # the only folder of weavegen that is mounted in a box
PACKAGES = "/opt/packages"  # packages that blocks may import; below /opt/weave if the root is an image
FILES = "/opt/files"  # the initial files of /app
COMMANDS = "/opt/weave/bin"
"""The folder in which `python` and `python3` are the interpreter that runs the box."""
HOSTS_FILE = b"127.0.0.1 localhost\n::1 localhost\n"
NETWORK_FILES = ("/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates")
"""Files for name resolution and certificates; for boxes that share the host's network."""
PROGRAM_SETTINGS = ("/etc/emacs", "/etc/nethack")  # files that Emacs and NetHack read when they start
NETHACK = "/var/games/nethack"
"""Where NetHack keeps its games. No environment variable changes it."""
WRITABLE = ("/app", "/tmp", "/dev/shm", NETHACK)
"""The writable folders of a box. They are in memory and end with the box."""
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH for an image that sets none, as in a container."""
NICE = 5  # boxes get less processor time than workers and the database
OOM_SCORE_ADJ = 800  # if the host runs out of memory, the kernel kills boxes first (proc_pid_oom_score_adj(5))
TRIAL_SECONDS = 20.0
"""Time limit for the trial run of `require_bubblewrap`."""


class Bubblewrap:
    """Makes boxes with bubblewrap.

    As root: each box has an unused user id and no user namespace, so that the kernel's process limits hold. As
    another user: each box has a user namespace. In both cases it has no capabilities and can't gain any.
    """

    name = "bubblewrap"

    def layout(self, box: Box) -> Layout:
        packages, files = None if box.packages is None else PACKAGES, None if box.files is None else FILES
        if box.root is not None:
            return Layout(box.root.workdir, "/opt/weave", interpreter(), packages and in_image(packages))
        return Layout("/app", "/opt/weave", (str(PYTHON),), packages, files)

    def uid(self, trace_id: int, workspaces: Path) -> int:
        """Return an id that is unique among 100,000 consecutive traces and unused by most other installations."""
        if os.getuid() != 0:
            return os.getuid()
        installation = zlib.crc32(os.fsencode(workspaces)) % 2_000
        return FIRST_UID + installation * 100_000 + trace_id % 100_000

    def require(self) -> None:
        require_bubblewrap()

    def start(self, box: Box) -> Handle:
        require_bubblewrap()
        for folder in (*map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store")), PREFIX):
            if box.workspace.resolve().is_relative_to(folder.resolve()):
                raise UsageError(f"WEAVEGEN_HOME lies in {folder}, which boxes can read: set it to a folder elsewhere")
        name = f"weavegen-{zlib.crc32(os.fsencode(box.workspace.parent)):08x}-{box.workspace.name}"
        group_paths = groups.create(name, box.limits)
        try:
            return self.start_in(box, group_paths)
        except BaseException:
            groups.remove(group_paths)
            raise

    def start_in(self, box: Box, group_paths: tuple[str, ...]) -> Handle:
        """Start the box. The command begins after the process has been moved into its control groups."""
        with contextlib.ExitStack() as stack:
            info, info_end = os.pipe()
            stack.callback(os.close, info)
            gate_end, gate = os.pipe()
            stack.callback(os.close, gate)
            files = {"/etc/hosts": readable(HOSTS_FILE, stack)}
            if box.root is None:
                # Programs look up their user: NetHack crashes if it does not exist.
                passwd = f"weaver:x:{box.uid}:{box.uid}::/app:/bin/sh\n".encode()
                files["/etc/passwd"] = readable(passwd, stack)
            seccomp = readable(program(allowed=ALLOWED_CALLS if box.root else frozenset()) or b"", stack)
            variables = readable(environment_options(box), stack)
            inherited = (info_end, gate_end, *files.values(), seccomp, variables, *box.descriptors)
            try:
                sources: list[Path] = []
                command = self.arguments(box, info_end, gate_end, files, seccomp, variables, sources)
                command += box.command
                if box.root is not None:
                    limits = {"NPROC": box.limits.processes + 8, "NOFILE": box.limits.files, "CORE": 1}
                    limits["FSIZE"] = box.limits.file_size
                    command = box.root.command(command, sources, limits)
                environ = {"PATH": os.environ.get("PATH", os.defpath)}
                process = spawn(command, box.log, pass_fds=inherited, cwd="/", env=environ)
            finally:
                os.close(info_end)
                os.close(gate_end)
            try:
                handle = self.read_info(info, box)
                if box.temporary:
                    end_with_this_process(handle.pid)
            except (EnvironmentFailure, OSError):
                os.killpg(process.pid, signal.SIGKILL)  # with process 1, which may wait for bubblewrap for ever
                process.wait()
                raise
            handle = place_process(handle, group_paths)
            with contextlib.suppress(BrokenPipeError):  # the box has died; its first caller gets the error
                os.write(gate, b"!")
            adopt(handle.pid, process)
            return handle

    def read_info(self, info: int, box: Box) -> Handle:
        """Read the pid of the box's process 1, which bubblewrap writes to `info`. Raises EnvironmentFailure."""
        text, deadline, poll = b"", time.monotonic() + box.limits.start, select.poll()
        poll.register(info, select.POLLIN)
        while not text.rstrip().endswith(b"}"):
            ready = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            data = os.read(info, 4096) if ready else b""
            if not data:
                raise EnvironmentFailure(f"bubblewrap did not start: {tail(box.log) or 'it printed nothing'}")
            text += data
        return Handle.of(int(json.loads(text)["child-pid"]))

    def arguments(
        self, box: Box, info: int, gate: int, files: dict[str, int], seccomp: int, variables: int, sources: list[Path]
    ) -> list[str]:
        """Return the command line before the box's command. `files`: descriptors with the contents, by path.

        bubblewrap writes the pid of process 1 to `info`, reads further options from `variables`, and runs the command
        once `gate` is readable. If the root is an image, the host paths to mount are added to `sources`: bubblewrap
        finds them where `Root.command` puts them.
        """
        limits = box.limits

        def source_of(path: Path) -> str:
            if box.root is None:
                return str(path)
            sources.append(path)
            return f"{STAGE}/source{len(sources) - 1}"

        arguments = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        if box.network == "none":
            arguments.append("--unshare-net")
        if box.temporary:  # until `end_with_this_process` takes over; as root, changing the user id cancels it
            arguments.append("--die-with-parent")
        arguments += ["--unshare-cgroup-try", "--as-pid-1", "--new-session", "--hostname", "localhost"]
        arguments += ["--info-fd", str(info), "--block-fd", str(gate), "--seccomp", str(seccomp)]
        arguments += ["--cap-drop", "ALL"]
        if box.root is not None:  # its user namespace already exists (userns.py)
            capabilities = [f"CAP_{name}" for name in CAPABILITIES]
        elif os.getuid() == 0:
            capabilities = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"]
        else:
            capabilities = []
            arguments.append("--unshare-user")
        for capability in capabilities:
            arguments += ["--cap-add", capability]
        arguments += system() if box.root is None else box.root.mounts()
        arguments += ["--perms", "0755", "--dir", "/etc"]
        for name, descriptor in files.items():
            bind = ["--perms", "0444", "--ro-bind-data"] if box.root is None else ["--perms", "0644", "--bind-data"]
            arguments += [*bind, str(descriptor), name]
        for name in (*PROGRAM_SETTINGS, *(NETWORK_FILES if box.network == "host" else ())):
            if box.root is None:
                arguments += ["--ro-bind-try", name, name]
        if box.root is not None and box.network == "host":  # the image's own certificates and settings stay
            arguments += ["--ro-bind", source_of(Path(NETWORK_FILES[0])), NETWORK_FILES[0]]
        for folder in WRITABLE if box.root is None else ("/dev/shm",):
            arguments += ["--size", str(limits.disk), "--perms", "1777", "--tmpfs", folder]
        for folder in ("/opt", "/opt/weave", "/opt/weave/weavegen", COMMANDS):
            arguments += ["--perms", "0755", "--dir", folder]
        arguments += ["--ro-bind", source_of(BOX_FOLDER), "/opt/weave/weavegen/box"]
        for source, place in ((box.packages, PACKAGES), (box.files, FILES)):
            if source is not None:
                arguments += ["--ro-bind", source_of(source), place if box.root is None else in_image(place)]
        for name, source in box.folders.items():
            arguments += ["--ro-bind", str(source), f"/app/{name}"]
        if box.root is None:
            for name in ("python", "python3"):
                arguments += ["--symlink", str(PYTHON), f"{COMMANDS}/{name}"]
            arguments += ["--remount-ro", "/dev", "--remount-ro", "/"]
        else:
            arguments += ["--remount-ro", "/opt/weave"]
        arguments += ["--clearenv", "--args", str(variables), "--"]
        if box.root is not None:  # its process limits are those of its own user namespace
            return arguments
        if os.getuid() == 0:
            arguments += ["setpriv", f"--reuid={box.uid}", f"--regid={box.uid}", "--clear-groups"]
            arguments += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
        arguments += ["prlimit", f"--nproc={limits.processes}", f"--fsize={limits.file_size}"]
        arguments += [f"--as={limits.address_space}:{limits.most_address_space}", f"--nofile={limits.files}"]
        arguments += ["--sigpending=512", "--msgqueue=0"]
        # A limit of 1 byte prevents core dumps. A limit of 0 would still allow a pipe to a program of the host.
        return [*arguments, "--memlock=65536", "--core=1", "--"]


@cache  # exceptions are not cached
def require_bubblewrap() -> None:
    """Raise UsageError, with advice, if no box can be made. The first call makes one to find out (about 20 ms)."""
    compileall.compile_dir(BOX_FOLDER, quiet=2)  # a box can't write there, and would compile at each start (20 ms)
    otherwise = "or give up isolation with WEAVEGEN_SANDBOX=none"
    tools = ["bwrap", "prlimit", *(["setpriv"] if os.getuid() == 0 else [])]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        raise UsageError(f"{' and '.join(missing)} not found: install bubblewrap and util-linux, {otherwise}")
    if (filter_ := program()) is None:
        raise UsageError(f"no filter of system calls for {platform.machine()}: use x86_64 or aarch64, {otherwise}")
    with contextlib.ExitStack() as stack:
        seccomp = readable(filter_, stack)
        command = ["bwrap", *([] if os.getuid() == 0 else ["--unshare-user"])]
        command += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "--as-pid-1"]
        command += ["--hostname", "localhost", "--cap-drop", "ALL", "--seccomp", str(seccomp), *system()]
        command += ["--size", "65536", "--tmpfs", "/tmp"]
        try:
            done = subprocess.run(
                [*command, "--", "true"], capture_output=True, text=True, timeout=TRIAL_SECONDS, pass_fds=[seccomp]
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"bubblewrap can't be run ({error}): install it again, {otherwise}") from None
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UsageError(
            f"bubblewrap can't make a box here ({reason}): allow unprivileged user namespaces "
            "(sysctl kernel.apparmor_restrict_unprivileged_userns=0, kernel.unprivileged_userns_clone=1), in a "
            f"container give it the privileges that docs/deploy.md lists, {otherwise}"
        )


def in_image(place: str) -> str:
    """The place, in a box with an image, of a folder that other boxes have in /opt: the image keeps its own /opt."""
    return place.replace("/opt", "/opt/weave", 1)


def place_process(handle: Handle, group_paths: tuple[str, ...]) -> Handle:
    """Move a new box into its control groups and set its priorities. Returns the handle with the joined groups."""
    joined = groups.join(group_paths, handle.pid)
    groups.remove(tuple(group for group in group_paths if group not in joined))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, handle.pid, NICE)
    with contextlib.suppress(OSError):
        Path(f"/proc/{handle.pid}/oom_score_adj").write_text(str(OOM_SCORE_ADJ))
    return replace(handle, groups=joined)


def readable(data: bytes, stack: contextlib.ExitStack) -> int:
    """Make a descriptor from which `data` can be read. The stack closes it."""
    end = os.memfd_create("box")
    stack.callback(os.close, end)
    os.write(end, data)
    os.lseek(end, 0, os.SEEK_SET)
    return end


def environment_options(box: Box) -> bytes:
    """The options that set the environment, for `--args`: it may hold secrets, and everybody sees command lines.

    Raises EnvironmentFailure for a NUL, after which a variable of an image could go on with options.
    """
    usual = {"PATH": f"{COMMANDS}:/usr/local/bin:/usr/bin:/bin", "HOME": "/app", "LANG": "C.UTF-8"}
    environ = (usual if box.root is None else {"PATH": IMAGE_PATH, **box.root.environ}) | box.environ
    if wrong := [name for name, value in environ.items() if "\0" in name + value]:
        raise EnvironmentFailure(f"the environment variable {wrong[0]!r:.80} contains a NUL")
    return b"".join(os.fsencode(f"--setenv\0{name}\0{value}\0") for name, value in environ.items())


def system() -> list[str]:
    """Return arguments that mount the system's programs, its libraries and the base interpreter read-only."""
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
