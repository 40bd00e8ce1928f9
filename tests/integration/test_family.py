"""The processes that descend from one: as psutil finds them in the table of all processes."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.waiting import until
from weavegen.sandbox.children import family

TREE = """
import subprocess, threading
def start(command):
    subprocess.Popen(["sh", "-c", command])
thread = threading.Thread(target=start, args=("sleep 60 & wait",))
thread.start()
thread.join()
start("sh -c 'sleep 60 & wait' & wait")
input()
"""
"""Five processes below one, two of them started by a thread that has ended."""


@pytest.fixture
def root() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", TREE], stdin=subprocess.PIPE, start_new_session=True) as started:
        process = psutil.Process(started.pid)
        until(lambda: len(process.children(recursive=True)) == 5, "the processes have not started", seconds=20)
        yield process
        for member in process.children(recursive=True):
            member.kill()
        started.kill()


def test_the_kernel_s_lists_of_children_give_the_same_processes(root: psutil.Process) -> None:
    assert Path("/proc/thread-self/children").exists()
    assert set(family(root)) == {root, *root.children(recursive=True)}


def test_a_kernel_without_such_lists_is_asked_for_all_processes(
    root: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: path.name != "children" and exists(path))
    assert len(family(root)) == 6


def test_a_process_that_is_gone_is_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as gone:
        process = psutil.Process(gone.pid)
        gone.kill()
    assert family(process) == [process]
