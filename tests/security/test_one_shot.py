"""The box of a command that only tries a file dies with the command; that of a trace does not."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support import ROOT, command
from weavegen import config as configuration
from weavegen.sandbox.environment import Environment
from weavegen.services.processes import wait

CLINGING = """
import ctypes, os, signal, time

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
os.execv("/bin/sh", ["sh", "-c", "trap '' HUP INT TERM; echo {mark}; sleep 600 & sleep 600"])
"""
"""A bootstrap file that keeps its box alive in every way that a process has."""
WAITING = "import time\n# {mark}\ntime.sleep(600)\n"


def descendants(pid: int) -> dict[int, psutil.Process]:
    return {child.pid: child for child in psutil.Process(pid).children(recursive=True)}


@pytest.mark.parametrize("sandbox", ["bubblewrap", "none"])
@pytest.mark.parametrize("source", [CLINGING, WAITING], ids=["clinging", "waiting"])
def test_the_box_of_a_killed_check_dies_with_it(tmp_path: Path, sandbox: str, source: str) -> None:
    if sandbox == "none" and source is CLINGING:
        pytest.skip("without isolation nothing holds code that clings")
    file = tmp_path / "cling.py"
    file.write_text(source.replace("{mark}", tmp_path.name))
    environ = {**os.environ, "WEAVEGEN_HOME": str(tmp_path / "home"), "WEAVEGEN_SANDBOX": sandbox}
    checking = subprocess.Popen(
        [command.PROGRAM, "check", file], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline, boxed = time.monotonic() + 60, dict[int, psutil.Process]()
    while time.monotonic() < deadline:
        found = descendants(checking.pid)
        names = [process.info["name"] for process in psutil.process_iter(["name"]) if process.pid in found]
        if (source is CLINGING and names.count("sleep") >= 2) or (
            source is WAITING and names and "python" in names[-1]
        ):
            boxed = found
            break
        time.sleep(0.05)
    time.sleep(1)
    assert checking.poll() is None
    boxed |= descendants(checking.pid)
    assert boxed
    checking.kill()
    checking.wait()
    alive = wait(boxed.values(), 5)
    for process in alive:
        process.kill()
    assert not alive, alive


def test_a_trace_keeps_its_box_when_its_worker_is_killed(tmp_path: Path) -> None:
    environ = {**os.environ, "WEAVEGEN_HOME": str(tmp_path)}
    start = "from weavegen import config; from weavegen.sandbox.environment import Environment; import os, signal\n"
    start += "Environment.start(config.load(), 1); os.kill(os.getpid(), signal.SIGKILL)"
    worker = subprocess.run([sys.executable, "-c", start], env=environ, cwd=ROOT)
    assert worker.returncode == -signal.SIGKILL
    found = Environment.find(configuration.load({"WEAVEGEN_HOME": str(tmp_path)}), 1)
    assert found is not None
    found.ping()
    found.stop()
