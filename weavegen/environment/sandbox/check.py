"""The contract that every provider must keep, as a program: `check(provider("bubblewrap"))`.

A probe runs inside and writes down what it could do; the host looks at what came of it.
"""

import json
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from weavegen.environment.sandbox import Box, Handle, Limits, Sandbox

PROBE = r"""
import ctypes, json, os, resource, socket, subprocess, sys, time
told = json.loads(sys.argv[1])
report = {"uid": os.getuid(), "environ": dict(os.environ), "pids": [], "trials": {}}

def trial(name, function):
    try:
        report["trials"][name] = [True, str(function())]
    except BaseException as error:
        report["trials"][name] = [False, f"{type(error).__name__}: {error}"]

def write(path):
    with open(path, "w") as file:
        file.write("x")
    os.remove(path)

def big_file():
    try:
        with open(told["app"] + "/big", "wb") as file:
            for _ in range(40):
                file.write(b"x" * 2**20)
    finally:
        os.remove(told["app"] + "/big")

def home():
    hidden = lambda name: not told["python"].startswith(told["home"] + "/" + name)
    return next(filter(hidden, os.listdir(told["home"])))

def bomb():
    children = []
    try:
        while len(children) < 200:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, 9)
            os.waitpid(child, 0)

def serve():
    report["server"] = server = socket.create_server(("127.0.0.1", 8000))
    socket.create_connection(("localhost", 8000), 2)
    del report["server"]
    globals()["kept"] = server

def namespace():
    if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):
        raise OSError(ctypes.get_errno(), "unshare")

with open("/proc/self/status") as file:
    report["status"] = dict(line.strip("\n").split(":\t", 1) for line in file if ":\t" in line)
report["pids"] = [name for name in os.listdir("/proc") if name.isdecimal()]
report["interfaces"] = [name for _, name in socket.if_nameindex()]
report["core"] = resource.getrlimit(resource.RLIMIT_CORE)[1]
trial("write to the workspace", lambda: write(told["app"] + "/mine"))
trial("write to /tmp", lambda: write("/tmp/mine"))
trial("write to the system", lambda: write("/usr/mine"))
trial("write to /", lambda: write("/mine"))
trial("see the user's files", home)
trial("read a secret", lambda: open(told["secret"]).read())
trial("reach the host's socket", lambda: socket.socket(socket.AF_UNIX).connect(told["socket"]))
trial("connect to the outside", lambda: socket.create_connection(("192.0.2.1", 80), 0.5))
trial("serve on port 8000", serve)
trial("become root", lambda: os.setuid(0))
trial("make a namespace", namespace)
trial("take too much memory", lambda: len(bytearray(told["memory"] + 2**20)))
trial("write a file that is too big", big_file)
if told["bomb"]:
    trial("start too many processes", bomb)
trial("leave a child", lambda: subprocess.Popen(["sleep", told["mark"]], start_new_session=True).pid)
with open(told["app"] + "/report.new", "w") as file:
    json.dump(report, file, default=str)
os.rename(told["app"] + "/report.new", told["app"] + "/report")
time.sleep(60)
"""

LIMITS = Limits(memory=512 * 2**20, processes=24, file_size=16 * 2**20)


class Finding(NamedTuple):
    """One clause of the contract."""

    what: str
    ok: bool
    detail: str


def check(sandbox: Sandbox) -> list[Finding]:
    """Every clause, and whether the provider keeps it on this host. Takes about two seconds."""
    with tempfile.TemporaryDirectory(prefix="weavegen-check-") as folder:
        root = Path(folder)
        root.chmod(0o711)
        secret = root / "other" / "secret"
        secret.parent.mkdir()
        secret.write_text("a secret of another trace")
        os.environ["WEAVEGEN_CHECK_SECRET"] = "a secret of the host"
        try:
            with running(sandbox, root, 1, secret) as (handle, report, mark):
                findings = list(judge(report))
                with running(sandbox, root, 2, secret) as (_, second, _):
                    ok, detail = second["trials"]["serve on port 8000"]
                    findings.append(Finding("two boxes can serve the same port", ok, detail))
                    apart = second["uid"] != report["uid"] or os.getuid() != 0
                    findings.append(Finding("started by root, boxes have different users", apart, ""))
                findings.append(Finding("killing the box kills its grandchildren", *gone(sandbox, handle, mark)))
            with running(sandbox, root, 3, secret) as (handle, _, mark):
                findings.append(Finding("the box dies with its first process", *dies(handle, mark)))
        finally:
            del os.environ["WEAVEGEN_CHECK_SECRET"]
    return findings


def judge(report: dict[str, Any]) -> Iterator[Finding]:
    """What one probe has seen."""
    status, trials = report["status"], report["trials"]
    yield Finding("it is not root", report["uid"] != 0, f"uid {report['uid']}")
    for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
        yield Finding(f"no capabilities in {name}", int(status[name], 16) == 0, status[name])
    yield Finding("no new privileges", status["NoNewPrivs"] == "1", status["NoNewPrivs"])
    yield Finding("system calls are filtered", status["Seccomp"] == "2", status["Seccomp"])
    strangers = sorted(set(report["environ"]) - {"PATH", "HOME", "LANG", "PWD", "LC_CTYPE"})
    yield Finding("no environment variables of the host", not strangers, ", ".join(strangers))
    yield Finding("no processes of the host", len(report["pids"]) <= 2, f"{len(report['pids'])} processes")
    yield Finding("loopback only", report["interfaces"] == ["lo"], ", ".join(report["interfaces"]))
    yield Finding("no core files", report["core"] == 0, str(report["core"]))
    can = ("write to the workspace", "write to /tmp", "serve on port 8000", "leave a child")
    for name, (done, detail) in trials.items():
        yield Finding(f"it can {name}" if name in can else f"it can't {name}", done == (name in can), detail)


@contextmanager
def running(
    sandbox: Sandbox, root: Path, number: int, secret: Path
) -> Iterator[tuple[Handle, dict[str, Any], str]]:
    """A box whose probe has reported."""
    workspace, mark = root / str(number), str(10_000 + secrets.randbelow(10**9))
    workspace.mkdir(mode=0o700)
    uid = sandbox.uid(number, root)
    if uid != os.getuid():
        os.chown(workspace, uid, uid)
    layout = sandbox.layout(workspace)
    told = {
        "app": layout.app,
        "home": str(Path.home()),
        "python": layout.python,
        "secret": str(secret),
        "socket": str(root / "socket"),
        "memory": LIMITS.memory,
        "bomb": sandbox.name != "none",
        "mark": mark,
    }
    log = root / f"{number}.log"
    command = (layout.python, "-sSPB", "-c", PROBE, json.dumps(told))
    handle = sandbox.start(Box(workspace, uid, command, {}, {}, (), log, LIMITS))
    try:
        deadline = time.monotonic() + LIMITS.start
        while not (workspace / "report").exists():
            if not handle.alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the probe did not report: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.01)
        yield handle, json.loads((workspace / "report").read_text()), mark
    finally:
        sandbox.kill(handle)


def gone(sandbox: Sandbox, handle: Handle, mark: str) -> tuple[bool, str]:
    if not sleepers(mark):
        return False, "the child could not be seen from the host"
    sandbox.kill(handle)
    return none_left(mark)


def dies(handle: Handle, mark: str) -> tuple[bool, str]:
    os.kill(handle.pid, signal.SIGKILL)
    handle.wait(5)
    return none_left(mark)


def none_left(mark: str) -> tuple[bool, str]:
    deadline = time.monotonic() + 2
    while left := sleepers(mark):
        if time.monotonic() > deadline:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            return False, f"processes {left} were left"
        time.sleep(0.01)
    return True, ""


def sleepers(mark: str) -> list[int]:
    """Processes of the host that run `sleep MARK`."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if (folder / "cmdline").read_bytes() == f"sleep\0{mark}\0".encode():
                    found.append(int(folder.name))
            except OSError:
                continue  # it ended meanwhile
    return found
