"""The register of processes: no entry is lost, and foreign processes are never ended."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from weavegen import config as configuration
from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import fleet, processes

SLEEP = ["sleep", "600"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Config]:
    """A separate home, in which nothing must be left running."""
    config = configuration.load({"WEAVEGEN_HOME": str(tmp_path / "home")})
    folders.prepare(config)
    yield config
    processes.stop(config, processes.registered(config).values(), grace=0)
    shutil.rmtree(config.runtime)


def test_a_process_is_found_again_by_its_name(here: Config) -> None:
    service = processes.start(here, "sleeper", SLEEP, url="http://127.0.0.1:1/v1")
    assert processes.find(here, "sleeper") == service
    assert processes.registered(here)["sleeper"].url == "http://127.0.0.1:1/v1"
    assert processes.find(here, "another") is None


def test_a_process_leads_its_own_session(here: Config) -> None:
    service = processes.start(here, "sleeper", SLEEP)
    assert os.getsid(service.pid) == service.pid


def test_output_goes_to_a_log(here: Config) -> None:
    service = processes.start(here, "talker", ["sh", "-c", "echo out; echo err >&2; sleep 600"])
    processes.wait_until(service, lambda: (here.logs / "talker.log").read_text() == "out\nerr\n", 10)


def test_stopping_removes_the_register_entry(here: Config) -> None:
    service = processes.start(here, "sleeper", SLEEP)
    assert processes.stop(here, [service]) == [service]
    assert not psutil.pid_exists(service.pid)
    assert processes.registered(here) == {}
    assert processes.stop(here, [service]) == []


def test_a_dead_process_is_not_found(here: Config) -> None:
    service = processes.start(here, "sleeper", SLEEP)
    os.kill(service.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while processes.find(here, "sleeper") is not None:
        assert time.monotonic() < deadline
    assert "sleeper" in processes.registered(here)


def test_a_pid_that_was_reused_by_another_process_is_left_alone(here: Config) -> None:
    with subprocess.Popen(SLEEP) as stranger:
        born = psutil.Process(stranger.pid).create_time()
        stale = processes.Service(name="sleeper", pid=stranger.pid, created=born - 3600, command=SLEEP)
        processes.record(here, stale)
        assert processes.find(here, "sleeper") is None
        assert processes.stop(here, [stale]) == []
        assert stranger.poll() is None
        assert processes.registered(here) == {}
        stranger.kill()


def test_a_step_of_the_systems_clock_changes_no_process(here: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    service = processes.start(here, "sleeper", SLEEP)
    real, now = psutil.Process.create_time, time.time
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: real(process) + 3600)
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    assert processes.find(here, "sleeper") == service
    assert processes.orphans(here) == []
    assert 0 <= (processes.age(service) or -1) < 60
    assert not processes.alive(msgspec.structs.replace(service, ticks=(service.ticks or 0) - 1)), "a later process"


def test_a_register_of_the_version_before_is_read(here: Config) -> None:
    service = processes.start(here, "sleeper", SLEEP)
    [entry] = msgspec.json.decode(processes.register_path(here).read_bytes())
    del entry["ticks"]
    processes.register_path(here).write_bytes(msgspec.json.encode([entry]))
    found = processes.find(here, "sleeper")
    assert found == msgspec.structs.replace(service, ticks=None)
    assert processes.stop(here, [found]) == [found]
    assert not processes.alive(service)


def test_without_a_home_no_command_starts_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "answering", lambda config: set())
    assert not fleet.serves(configuration.load({"WEAVEGEN_HOME": str(tmp_path / "none")}))


def test_descendants_are_stopped_too(here: Config) -> None:
    service = processes.start(here, "family", ["sh", "-c", "sh -c 'sleep 600 & wait' & wait"])
    parent = psutil.Process(service.pid)
    processes.wait_until(service, lambda: len(parent.children(recursive=True)) == 2, 10)
    children = parent.children(recursive=True)
    processes.stop(here, [service])
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_a_process_that_ignores_sigterm_is_killed(here: Config) -> None:
    service = processes.start(here, "deaf", ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"])
    processes.wait_until(service, lambda: "deaf" in (here.logs / "deaf.log").read_text(), 10)
    began = time.monotonic()
    assert processes.stop(here, [service], grace=0.3) == [service]
    assert 0.3 <= time.monotonic() - began < 8
    assert not processes.alive(service)


def test_the_error_for_a_process_that_fails_to_start_has_its_last_line(here: Config) -> None:
    with pytest.raises(UsageError, match="broken ended as soon as it was started: no such luck") as caught:
        processes.start(here, "broken", ["sh", "-c", "echo no such luck; exit 3"], ready=lambda: False)
    assert "\n" not in str(caught.value)
    assert processes.registered(here) == {}


def test_the_last_line_of_a_log_that_is_larger_than_the_memory(tmp_path: Path) -> None:
    log = tmp_path / "vllm-1.log"
    with log.open("wb") as file:
        file.truncate(10 * 2**30)  # a hole, which takes no room on the disk
        file.seek(0, os.SEEK_END)
        file.write("\nno such läck\n\n".encode())
    assert processes.last_line(str(log)) == "no such läck"
    assert processes.last_line(str(tmp_path / "missing.log")) == processes.last_line(None) == ""


def test_a_process_that_never_becomes_ready_is_stopped(here: Config) -> None:
    with pytest.raises(UsageError, match=r"slow did not answer within 0 seconds"):
        processes.start(here, "slow", SLEEP, ready=lambda: False, timeout=0.2)
    assert processes.registered(here) == {}


def test_concurrent_writers_lose_no_entry_of_the_register(here: Config) -> None:
    def add(number: int) -> None:
        processes.record(here, processes.Service(name=f"n{number}", pid=2**22 + number, created=0.0, command=[]))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(processes.registered(here)) == 20


def test_forgetting_an_old_process_keeps_the_new_one_of_the_same_name(here: Config) -> None:
    old = processes.Service(name="x", pid=2**22, created=1.0, command=[])
    new = msgspec.structs.replace(old, created=2.0)
    processes.record(here, new)
    processes.forget(here, old)
    assert processes.registered(here) == {"x": new}


def test_a_corrupt_register_is_a_one_line_error(here: Config) -> None:
    processes.register_path(here).write_text('[{"name": ')
    with pytest.raises(UsageError, match=r"services\.json is invalid"):
        processes.registered(here)
    processes.register_path(here).unlink()


def test_a_lock_keeps_other_processes_out(here: Config) -> None:
    path = here.home / "a.lock"
    code = f"""if True:
        from pathlib import Path
        from weavegen.folders import locked
        with locked(Path({str(path)!r})):
            print("in", flush=True)
            input()
    """
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(UsageError, match=r"another weavegen command holds .*a\.lock"), folders.locked(path, 0.1):
            pass
        other.kill()
    with folders.locked(path, 10):  # the lock was released when its holder was killed
        pass


def test_a_home_that_is_a_file_is_a_one_line_error(tmp_path: Path) -> None:
    (tmp_path / "home").touch()
    with pytest.raises(UsageError, match="WEAVEGEN_HOME"):
        folders.prepare(configuration.load({"WEAVEGEN_HOME": str(tmp_path / "home")}))


def test_a_runtime_folder_that_another_user_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="belongs to another user"):
        folders.private(tmp_path / "run")
