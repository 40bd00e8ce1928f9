"""The self-check by attacks (weavegen doctor --sandbox), one test for each attack; limits; requirements on the host."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.security.attacks import ATTACKS, selfcheck
from tests.security.attacks.arena import Arena, arena
from tests.security.attacks.attack import Attack
from tests.security.attacks.filesystem import FILESYSTEM
from tests.security.attacks.poison import POISON
from tests.security.attacks.processes import PROCESSES
from weavegen import config as configuration
from weavegen.box.confine import RETURN
from weavegen.cli.app import app
from weavegen.config import Config
from weavegen.errors import EnvironmentFailure, UsageError
from weavegen.folders import private
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox import bubblewrap, groups, seccomp
from weavegen.sandbox.answer import InvalidAnswer, check_answer
from weavegen.sandbox.environment import Environment, last_kill_reason, remove
from weavegen.sandbox.providers import Box, Limits, provider
from weavegen.sandbox.watch import BoxState, Watch, watching


@pytest.fixture(scope="module")
def place() -> Iterator[Arena]:
    with arena(configuration.load({})) as place:
        yield place


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_contained(place: Arena, attack: Attack) -> None:
    finding = selfcheck.run(attack, place)
    assert finding.contained, finding.how


@pytest.mark.parametrize("attack", [*PROCESSES, *FILESYSTEM, *POISON], ids=lambda attack: attack.name)
def test_an_attack_by_a_candidate_that_is_tried_is_contained(place: Arena, attack: Attack) -> None:
    finding = selfcheck.run(attack, place, tried=True)
    assert finding.contained, finding.how


def test_there_are_enough_attacks() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) > 60


def test_without_isolation_attacks_are_reported_as_successful() -> None:
    findings = list(selfcheck.check(configuration.load({"WEAVEGEN_SANDBOX": "none"})))
    assert len(findings) == 5
    assert not any(finding.contained for finding in findings), findings
    with arena(configuration.load({"WEAVEGEN_SANDBOX": "none"})) as place, pytest.raises(UsageError, match="harm"):
        selfcheck.run(next(attack for attack in ATTACKS if not attack.harmless), place)


# ------------------------------------------------------------------------------------------------ limits


@pytest.fixture
def config() -> Iterator[Config]:
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        yield configuration.load({"WEAVEGEN_HOME": home})


@pytest.fixture
def watch(config: Config) -> Watch:
    """A watch without a thread: the test itself calls it."""
    return Watch(private(config.runtime))


SMALL = Limits(seconds=10, memory=128 * 2**20, disk=32 * 2**20, inodes=1_000, cpu=0.5, cpu_share=0.0)
OVER = {
    "processes": (
        "import os, time\nfor _ in range(30):\n    if os.fork() == 0: time.sleep(60)",
        "processes and threads",
    ),
    "memory": (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        kept = os.urandom(2**20) * 40\n"
        "        time.sleep(60)\ntime.sleep(1)",
        "128 MiB of memory",
    ),
    "files in memory": (
        "data = bytes(2**20)\nfor folder in ('/app', '/tmp', '/dev/shm', '/var/games/nethack'):\n"
        "    with open(folder + '/big', 'wb') as file:\n        for _ in range(31): file.write(data)\n"
        "kept = bytearray(b'x') * (30 * 2**20)",
        "128 MiB of memory",
    ),
    "inodes": ("import os\nfor n in range(2000): os.mkdir(f'/app/{n}')", "files and folders, 1,000 are allowed"),
    "sockets": ("import socket\nself.kept = [socket.socket() for _ in range(300)]", "open sockets, 256 are allowed"),
    "buffers of TCP": (
        "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\nself.kept = [listener]\n"
        "for _ in range(120):\n    one = socket.create_connection(listener.getsockname())\n"
        "    self.kept += [one, listener.accept()[0]]\n    one.setblocking(False)\n"
        "    try:\n        while True: one.send(bytes(2**16))\n    except BlockingIOError: pass",
        "128 MiB of memory",
    ),
    "processor time": (
        "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass",
        "processor",
    ),
}


@pytest.mark.parametrize("kind", OVER)
def test_the_watch_ends_what_the_kernel_does_not_limit(
    config: Config, watch: Watch, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "parents", lambda: ())  # a host without control groups
    body, reason = OVER[kind]
    limits = SMALL if kind == "processor time" else replace(SMALL, cpu=60)
    environment = Environment.start(config, 1, limits=limits)
    assert environment.handle.groups == ()
    assert watch.check_boxes() == []
    if kind == "processes":  # as if the kernel had not limited it
        state_path = environment.socket_path.with_suffix(".json")
        BoxState(environment.handle, replace(SMALL, processes=8)).write(state_path)
    source = f"def f(self):\n    {body.replace(chr(10), chr(10) + '    ')}\nself.add_action('f', f)\n"
    assert environment.execute(1, Execute(op="bootstrap", source=source)).error is None
    assert watch.check_boxes() == [environment.socket_path.with_suffix(".json")]
    environment.handle.wait(5)
    assert reason in str(last_kill_reason(config, 1))
    with pytest.raises(EnvironmentFailure, match=f"was killed: .*{reason}"):
        environment.execute(2, Execute(op="begin"))
    remove(config, 1)
    assert last_kill_reason(config, 1) is None


def test_shared_pages_count_once(config: Config, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "parents", lambda: ())
    environment = Environment.start(config, 1, limits=SMALL)
    source = (
        "import os, time\ndef f(self):\n    self.update_cache('kept', os.urandom(2**20) * 40)\n"
        "    for _ in range(6):\n        if os.fork() == 0: time.sleep(60)\nself.add_action('f', f)\n"
    )
    assert environment.execute(1, Execute(op="bootstrap", source=source)).error is None
    assert watch.check_boxes() == []
    environment.stop()


@pytest.mark.skipif(not groups.parents(), reason="no control groups can be made here")
def test_groups_limit_a_box_and_are_removed(config: Config) -> None:
    environment = Environment.start(config, 1, limits=SMALL)
    made = environment.handle.groups
    assert made
    assert all(str(environment.handle.pid) in Path(group, "cgroup.procs").read_text().split() for group in made)
    source = "def f(self):\n    kept = [bytearray(2**20) for _ in range(1000)]\nself.add_action('f', f)\n"
    with pytest.raises(EnvironmentFailure, match=r"was killed: it used more than 128 MiB of memory"):
        environment.execute(1, Execute(op="bootstrap", source=source))
    assert not any(Path(group).exists() for group in made)


def test_cgroup_v2_uses_only_delegated_groups(tmp_path: Path) -> None:
    own = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"
    group = tmp_path / own[1:]
    group.mkdir(parents=True)
    assert groups.delegated_groups(tmp_path, own) == [group]
    os.setxattr(group.parent.parent, "user.delegate", b"1")
    assert groups.delegated_groups(tmp_path, own) == [group, group.parent, group.parent.parent]
    assert groups.delegated_groups(tmp_path, "/") == [tmp_path]


def test_one_watch_per_installation(config: Config) -> None:
    folder = private(config.runtime)
    with watching(folder) as first, watching(folder) as second:
        environment = Environment.start(config, 1)
        deadline = time.monotonic() + 10
        while not (first.accounts or second.accounts):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert not (first.accounts and second.accounts)
        environment.stop()


# ------------------------------------------------------------------------------- requirements on the host


def test_missing_requirements_of_a_host_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bubblewrap.require_bubblewrap.cache_clear()
    changes: tuple[tuple[Callable[[pytest.MonkeyPatch], None], str], ...] = (
        (lambda patch: patch.setenv("PATH", str(tmp_path)), "bwrap and prlimit"),
        (lambda patch: patch.setattr(bubblewrap, "program", lambda: None), "no filter of system calls"),
    )
    for change, words in changes:
        with monkeypatch.context() as patch:
            change(patch)
            with pytest.raises(UsageError, match=words) as raised:
                provider("bubblewrap").require()
            assert "WEAVEGEN_SANDBOX=none" in str(raised.value)
            assert "\n" not in str(raised.value)
    provider("bubblewrap").require()
    provider("none").require()


def test_a_home_that_boxes_could_read_is_refused(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PREFIX", config.home.parent)
    with pytest.raises(UsageError, match=r"WEAVEGEN_HOME lies in .*, which boxes can read"):
        Environment.start(config, 1)


def test_a_variable_gives_bubblewrap_no_options(tmp_path: Path) -> None:
    """An image's author writes its variables, and JSON may have a NUL in a text."""
    environ = {"A": "1\0--share-net\0--bind\0/\0/mnt"}
    box = Box(workspace=tmp_path, uid=1, log=tmp_path / "log", limits=Limits(), command=("true",), environ=environ)
    with pytest.raises(EnvironmentFailure, match="the environment variable 'A' contains a NUL"):
        bubblewrap.Bubblewrap().start(box)


def test_up_refuses_a_host_without_isolation(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    bubblewrap.require_bubblewrap.cache_clear()
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    refused = CliRunner(env={"WEAVEGEN_HOME": str(config.home)}).invoke(app, ["up"]).exception
    assert isinstance(refused, UsageError)  # which cli.main makes exit code 2
    assert list(config.home.iterdir()) == []


def test_doctor_lists_the_attacks_on_request() -> None:
    doctor = ["doctor", "--sandbox", "--only"]
    done = CliRunner().invoke(app, [*doctor, "vsock|clock", "--json"])
    assert done.exit_code == 0
    findings = json.loads(done.stdout)
    assert [finding["contained"] for finding in findings] == [True] * 3
    assert set(findings[0]) == {"attack", "contained", "how", "seconds"}
    done = CliRunner(env={"WEAVEGEN_SANDBOX": "none"}).invoke(app, [*doctor, "database"])
    assert done.exit_code == 1
    assert "ESCAPED" in done.stdout
    assert "1 attacks, 1 not contained" in done.stdout


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_is_a_program_that_always_ends(machine: str) -> None:
    filter_ = seccomp.program(machine)
    assert filter_ is not None
    rows = [filter_[at : at + 8] for at in range(0, len(filter_), 8)]
    for place, row in enumerate(rows):
        jumps = (row[2], row[3]) if row[0] & 0x07 == 0x05 else (0,)
        ends = row[0] == RETURN
        assert ends or all(place + 1 + jump < len(rows) for jump in jumps)
    assert seccomp.program("riscv64") is None


@pytest.mark.parametrize(
    "executed",
    [
        Executed(value="a\x00b"),
        Executed(value={"a": [2**64]}),
        Executed(value=[[]] * 5_000),
        Executed(output="x" * 200_000),
        Executed(registered=("x",) * 65),
        Executed(waits_for="main"),
    ],
    ids=str,
)
def test_answers_that_no_runner_gives_are_refused(executed: Executed) -> None:
    with pytest.raises(InvalidAnswer):
        check_answer(executed, Execute(op="run"))
