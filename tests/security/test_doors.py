"""Access from outside: other users of the machine, other machines, and programs that reach the broker."""

import json
import os
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.planted import Planted
from tests.support.installation import Installation
from tests.support.ports import listening
from weavegen.config import Config
from weavegen.services import postgres, processes, redis
from weavegen.store import urls

NOBODY = 65534
UNHARMFUL = ("sim.ready", "env-", "watch.lock")


class Steal:
    """A pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


def knock(paths: list[Path]) -> list[str]:
    """The paths that another user can list, read or connect to."""
    end, start = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads; the child needs none
        child = os.fork()
    if child == 0:
        # Nothing is executed, because the interpreter may be where other users can't go.
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        os.write(start, json.dumps([str(path) for path in paths if opens(path)]).encode())
        os._exit(0)
    os.close(start)
    with os.fdopen(end) as told:
        found = json.load(told)
    os.waitpid(child, 0)
    return list(found)


def opens(path: Path) -> bool:
    try:
        if path.is_dir():
            os.listdir(path)
        elif path.is_socket():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(2)
                client.connect(str(path))
        else:
            path.open("rb").close()
    except OSError:
        return False
    return True


@pytest.fixture
def services(config: Config, postgres_url: str, redis_url: str) -> Config:
    return config


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_another_user_of_the_machine_has_no_access(services: Config, planted: Planted) -> None:
    for config in (services, planted.config):
        folders = [config.home, config.runtime, config.logs, config.workspaces]
        inside = [path for folder in folders for path in folder.rglob("*")]
        assert any(path.is_socket() for path in inside) or config is not services
        data = [postgres.data(config), postgres.data(config) / "PG_VERSION"]
        opened = set(knock([*folders, *inside, *(path for path in data if path.exists())]))
        # These contain only times and process numbers.
        unharmful = {path for path in opened if Path(path).name.startswith(UNHARMFUL)}
        assert opened == unharmful, opened


def test_permissions_of_folders_and_sockets(services: Config) -> None:
    others = {services.home: 0o1, services.runtime: 0o1, services.workspaces: 0o1, services.logs: 0}
    others |= {postgres.data(services): 0, urls.sockets(services): 0, redis.socket(services): 0}
    others |= {processes.register_path(services): 0}
    for path, allowed in others.items():
        assert path.stat().st_mode & 0o077 & ~(allowed * 0o11) == 0, (path, oct(path.stat().st_mode))


def test_all_listening_sockets_are_on_loopback(services: Config, planted: Planted, own_sim: int) -> None:
    """In two installations: the services, the workers, the simulated model, and all their children."""
    pids = [service.pid for config in (services, planted.config) for service in processes.registered(config).values()]
    assert len(pids) >= 6
    assert {ip for pid in [*pids, own_sim] for ip in listening(pid)} == {"127.0.0.1"}


@pytest.fixture
def own_sim(planted: Planted) -> Iterator[int]:
    """Runs `weavegen sim` as a user starts it. Yields its pid."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "weavegen", "sim", "--port", str(port)]
    process = subprocess.Popen(
        command, env=planted.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=planted.home
    )
    deadline = time.monotonic() + 30
    while not listening(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process.pid
    process.kill()
    process.wait()


def test_a_pickle_is_refused_by_every_worker(planted: Planted) -> None:
    host = planted.config.host
    queues = {"control": "advance", "sample": "sample", "lint": "lint", f"execute.{host}": "execute"}
    stolen = planted.home / "stolen"
    for queue, task in queues.items():
        planted.send(f"weavegen.{task}", Steal(stolen), queue=queue, serializer="pickle")
    still_works(planted)
    assert not stolen.exists()
    for name in ("model", "lint", "execute"):
        assert "a message is dropped: Invalid enum value" in (planted.config.logs / f"{name}.log").read_text()


REFUSED: dict[str, tuple[str, list[object], dict[str, object]]] = {
    "no arguments": ("enqueue", [], {}),
    "no text": ("enqueue", [7], {}),
    "too many traces": ("enqueue", ["x = 1"], {"n": 10**12}),
    "no number": ("enqueue", ["x = 1"], {"n": "many"}),
    "below 1": ("enqueue", ["x = 1"], {"n": -1}),
    "a huge text": ("enqueue", ["x" * 1_000_001], {}),
    "huge parameters": ("enqueue", ["x = 1"], {"params": {"a": "x" * 2_000_000}}),
    "parameters that are none": ("enqueue", ["x = 1"], {"params": [1]}),
    "settings that are none": ("enqueue", ["x = 1"], {"settings": "fast"}),
    "unknown settings": ("enqueue", ["x = 1"], {"settings": {"roundz": 1}}),
    "an unknown agent": ("enqueue", ["x = 1"], {"agent": "os.system"}),
    "a NUL in the name": ("enqueue", ["x = 1"], {"name": "a\0b"}),
    "a NUL in parameters": ("enqueue", ["x = 1"], {"params": {"a": ["\0"]}}),
    "half a character": ("enqueue", ["x = 1"], {"name": "\ud800"}),
    "a huge name": ("enqueue", ["x = 1"], {"name": "x" * 501}),
    "a huge seed": ("enqueue", ["x = 1"], {"seed": 2**80}),
    "an unknown option": ("enqueue", ["x = 1"], {"orders\x1b]0;OWNED\x07\n": 1}),
    "no Python": ("enqueue", ["def f(:"], {}),
    "a path": ("close", ["../../victim"], {}),
    "a list": ("close", [[1]], {}),
    "true": ("close", [True], {}),
    "a number below 1": ("close", [-1], {}),
    "a number beyond all rows": ("advance", [2**70], {}),
    "two": ("sample", [1, 2], {}),
    "a name": ("execute", [], {"trace_id": 1}),
}


def test_undeclared_arguments_of_a_task_are_refused(planted: Planted) -> None:
    victim = planted.home / "victim"
    victim.mkdir(exist_ok=True)
    before = planted.sql("select count(*) from jobs")
    places = {
        "close": f"execute.{planted.config.host}",
        "execute": f"execute.{planted.config.host}",
        "sample": "sample",
    }
    marks = {path: path.stat().st_size for path in planted.config.logs.glob("*.log")}
    for task, arguments, options in REFUSED.values():
        planted.send(f"weavegen.{task}", *arguments, queue=places.get(task, "control"), **options)
    planted.send("weavegen.close", "../victim", queue=f"execute.{planted.config.host}")
    planted.send("celery.backend_cleanup")
    planted.send("os.system", "true")
    still_works(planted)
    [[after]] = planted.sql("select count(*) from jobs")
    assert after == before[0][0] + 1, "only the job of still_works"
    assert victim.is_dir()
    new = "".join(path.read_text()[size:] for path, size in marks.items())
    assert new.count("refuses its arguments") >= 20
    assert "\x1b" not in new


def still_works(planted: Installation) -> None:
    """Every worker still accepts messages: a whole trace is written."""
    assert isinstance(planted, Planted)
    [[newest]] = planted.sql("select coalesce(max(id), 0) from jobs")
    source = (Path(__file__).parents[2] / "bootstraps" / "tictactoe.py").read_text()
    planted.send("weavegen.enqueue", source, name="after", settings={"ticks": 1, "rounds": [1]})
    deadline = time.monotonic() + 40
    query = "select t.status from traces t join jobs j on j.id = t.job_id where j.id > :newest and j.name = 'after'"
    while planted.sql(query, newest=newest) != [("ended",)]:
        assert time.monotonic() < deadline, planted.logs()
        time.sleep(0.1)
