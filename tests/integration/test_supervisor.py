"""The supervisor: real processes that end, and are started again."""

import dataclasses
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.support.waiting import until
from weavegen import config as configuration
from weavegen import folders
from weavegen.config import Config
from weavegen.errors import UsageError
from weavegen.services import faults, fleet, model_server, processes, supervisor, vllm
from weavegen.services.processes import Service

SLEEP = ["sleep", "600"]
ENDING = """
import ctypes, subprocess, threading, time

subprocess.Popen(["sleep", "600"], env={})
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
"""A program whose first thread has ended and whose second has not, like a large program for a while after SIGKILL.

It is a zombie, and its child, which no variable marks as a service's, still has it as parent.
"""


@pytest.fixture
def home() -> Iterator[Config]:
    folder = Path(tempfile.mkdtemp(prefix="weavegen-test-"))
    config = configuration.load({"WEAVEGEN_HOME": str(folder)})
    folders.prepare(config)
    fleet.lock_path(config).touch()
    yield config
    processes.stop(config, processes.registered(config).values(), grace=0)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def watched(home: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """A home with a supervisor in a thread of this process, whose delays are short."""
    monkeypatch.setattr(supervisor, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(supervisor, "DELAYS_SECONDS", (0.0, 0.05, 0.1, 0.2))
    monkeypatch.setattr(supervisor, "BOXES_SECONDS", 0.0)
    processes.record_process(home, processes.SUPERVISOR, os.getpid(), [], url=None)
    thread = threading.Thread(target=supervisor.Supervisor(home).run)
    thread.start()
    yield home
    if home.home.exists():
        processes.forget(home, processes.registered(home)[processes.SUPERVISOR])
    thread.join(10)
    assert not thread.is_alive()


def kill(service: Service) -> None:
    os.kill(service.pid, signal.SIGKILL)


def restarted(config: Config, name: str, restarts: int) -> Service:
    until(lambda: (found := processes.find(config, name)) is not None and found.restarts == restarts)
    return processes.registered(config)[name]


def test_a_service_that_ends_is_started_again_with_the_same_command_and_url(watched: Config) -> None:
    first = processes.start(watched, "sleeper", SLEEP, url="http://127.0.0.1:1/v1")
    kill(first)
    second = restarted(watched, "sleeper", 1)
    assert (second.command, second.url, second.log) == (first.command, first.url, first.log)
    assert second.pid != first.pid
    kill(second)
    restarted(watched, "sleeper", 2)


def test_a_service_that_ends_again_and_again_is_given_up_with_its_last_words(watched: Config) -> None:
    processes.start(watched, "broken", ["sh", "-c", "echo started >> times; echo no such device; exit 3"])
    until(lambda: processes.registered(watched)["broken"].failed is not None)
    assert "no such device" in str(processes.registered(watched)["broken"].failed)
    assert len((watched.home / "times").read_text().split()) == 5
    [fault] = faults.service_faults(watched)
    assert (fault.kind, fault.advice) == ("service", "fix the cause, then run `weavegen up`")
    time.sleep(0.5)
    assert len((watched.home / "times").read_text().split()) == 5

    # `up` starts it again, and the count of restarts begins again.
    processes.start(watched, "broken", SLEEP)
    kill(processes.registered(watched)["broken"])
    kill(restarted(watched, "broken", 1))
    restarted(watched, "broken", 2)
    [fault] = faults.service_faults(watched)
    assert re.fullmatch(r"broken has ended 2 times, and was restarted \d s ago", fault.what)


def test_up_starts_a_server_of_vllm_again_that_was_given_up(watched: Config) -> None:
    first = processes.start(watched, "vllm-1", SLEEP)
    processes.start(watched, "vllm-2", ["sh", "-c", "test -e mended || exit 3; sleep 600"])
    until(lambda: processes.registered(watched)["vllm-2"].failed is not None)
    (watched.home / "mended").touch()
    told: list[str] = []
    assert vllm.start(watched, "a-model", tell=told.append) == ([first], False)
    assert "vllm-2 is started again" in told[0]
    until(lambda: processes.find(watched, "vllm-2") is not None)
    assert processes.registered(watched)["vllm-1"] == first


def test_the_options_of_vllm_are_asked_for_again(home: Config) -> None:
    with pytest.raises(UsageError, match="options are not stored: run `weavegen up --vllm a-model` with"):
        vllm.start(home, "a-model")


def test_another_model_whose_name_begins_with_that_of_the_served_one(home: Config) -> None:
    command = ["sh", "-c", "sleep 600; true", *vllm.arguments("a-model-70b", 8000, (), ())]
    processes.start(home, "vllm-1", command)
    for model in ("a-model", "a-model-7", "70b"):
        with pytest.raises(UsageError, match="vllm-1 serves another model"):
            model_server.require_no_other(dataclasses.replace(home, model=f"vllm:{model}"))
    model_server.require_no_other(dataclasses.replace(home, model="vllm:a-model-70b"))


def test_the_delay_before_a_restart_grows(watched: Config) -> None:
    processes.start(watched, "broken", ["sh", "-c", "date +%s.%N >> times"])
    until(lambda: processes.registered(watched)["broken"].failed is not None)
    times = [float(line) for line in (watched.home / "times").read_text().split()]
    delays = [after - before for before, after in itertools.pairwise(times)]
    assert all(delay >= least for delay, least in zip(delays[1:], (0.05, 0.1, 0.2), strict=True))


def test_what_down_stops_is_not_started_again(watched: Config) -> None:
    service = processes.start(watched, "sleeper", SLEEP)
    with folders.locked(fleet.lock_path(watched)):
        processes.stop(watched, [service])
    time.sleep(0.3)
    assert processes.registered(watched).keys() == {processes.SUPERVISOR}


def test_nothing_is_restarted_while_another_command_starts_or_stops_services(watched: Config) -> None:
    service = processes.start(watched, "sleeper", SLEEP)
    with folders.locked(fleet.lock_path(watched)):
        kill(service)
        time.sleep(0.3)
        assert processes.find(watched, "sleeper") is None
        [fault] = faults.service_faults(watched)
        assert fault.what == "sleeper has ended"
        assert "it is restarted" in fault.advice
    restarted(watched, "sleeper", 1)


def test_a_temporary_service_is_left_alone(watched: Config) -> None:
    kill(processes.start(watched, "brief", SLEEP, temporary=True))
    time.sleep(0.3)
    assert processes.find(watched, "brief") is None


def test_services_end_when_their_home_is_removed(watched: Config) -> None:
    service = processes.start(watched, "sleeper", ["sh", "-c", "sleep 600 & wait"])
    until(lambda: len(psutil.Process(service.pid).children()) == 1)
    [child] = psutil.Process(service.pid).children()
    time.sleep(0.1)
    shutil.rmtree(watched.home)
    watched.home.mkdir()  # another home in its place changes nothing
    fleet.lock_path(watched).touch()
    until(lambda: not processes.alive(service) and not child.is_running())
    shutil.rmtree(watched.home)


def test_services_of_a_removed_home_are_found_and_ended(home: Config) -> None:
    service = processes.start(home, "sleeper", ["sh", "-c", "sleep 600 & wait"])
    until(lambda: len(psutil.Process(service.pid).children()) == 1)
    assert processes.orphans(home) == []
    processes.forget(home, service)
    assert len(processes.orphans(home)) == 2
    processes.end_orphans(home)
    assert processes.orphans(home) == []


def test_children_of_a_server_that_still_ends_are_ended(home: Config) -> None:
    service = processes.start(home, "server", [sys.executable, "-c", ENDING], url="http://127.0.0.1:1/v1")
    until(lambda: not processes.alive(service))
    [child] = psutil.Process(service.pid).children()
    assert processes.orphans(home) == [child]
    processes.end_orphans(home)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    kill(service)


def test_a_supervisor_ends_when_another_one_took_over(home: Config) -> None:
    other = processes.start(home, processes.SUPERVISOR, SLEEP)
    supervisor.Supervisor(home).run()
    assert processes.alive(other)


def test_when_everything_has_ended_one_line_says_so(home: Config) -> None:
    services = [processes.start(home, name, SLEEP) for name in ("one", "two")]
    assert faults.service_faults(home) == []
    for service in services:
        kill(service)
    until(lambda: not any(map(processes.alive, services)))
    [fault] = faults.service_faults(home)
    assert fault.what == "nothing runs any more: one, two have ended"
    processes.stop(home, services)
    assert faults.service_faults(home) == []


def test_stopping_a_service_spares_the_services_that_it_started(home: Config) -> None:
    parent = processes.start(home, "parent", ["sh", "-c", "sleep 600 & sleep 601 & wait"])
    until(lambda: len(psutil.Process(parent.pid).children()) == 2)
    service, helper = psutil.Process(parent.pid).children()
    processes.record_process(home, "child", service.pid, SLEEP, url=None)
    assert processes.stop(home, [parent]) == [parent]
    assert processes.find(home, "child") is not None
    assert not helper.is_running() or helper.status() == psutil.STATUS_ZOMBIE
