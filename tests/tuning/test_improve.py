"""`weavegen improve` with weavegen-nano: it is killed in each phase, goes on, and ends as if it had not been."""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.ports import free_port
from tests.support.trl import PYTHON
from weavegen.cli import improve
from weavegen.errors import UsageError
from weavegen.training import rounds
from weavegen.training.rounds import ADAPTER, Loop
from weavegen_nano import WEIGHTS

pytestmark = pytest.mark.timeout(1500)  # the time of the first test includes its fixtures

SUMS = ROOT / "bootstraps" / "sums.py"
SMALL = [
    *("-p", "sums=1", "-n", "2", "--held-out", "2", "--ticks", "1", "--rounds", "1", "--set", "query_samples=1"),
    *("--set-writing", "search=execute", "--all-traces", "--norms", "--balance", "--window", "256", "--most", "8"),
    *("--batch", "4", "--rate", "1e-3", "--launch", str(PYTHON)),
]


@pytest.fixture(scope="module")
def nano(trl_environ: dict[str, str]) -> Iterator[Installation]:
    """An installation with weavegen's own model."""
    with installed(**(trl_environ | {"WEAVEGEN_MODEL": "nano", "PYTHONPATH": str(ROOT)})) as started:
        yield started


@pytest.fixture(scope="module")
def whole(nano: Installation, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A loop that was not interrupted: its folder, and what it printed."""
    to = tmp_path_factory.mktemp("loops") / "whole"
    return to, went_on(nano, to)


def went_on(nano: Installation, to: Path, *options: str) -> Any:
    """Start the loop, or let it go on, until it is over. Returns what it printed."""
    done = nano.cli("improve", WEIGHTS, SUMS, "--out", to, *SMALL, *options, "--json", timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def state(folder: Path) -> Loop:
    loop = rounds.load(folder)
    assert loop is not None
    return loop


def test_a_loop_runs_and_reports(nano: Installation, whole: tuple[Path, Any]) -> None:
    to, told = whole
    loop = state(to)
    assert told["stopped"] == "1 rounds are done"
    assert [round.number for round in loop.rounds] == [0, 1]
    assert loop.rounds[1].rows["sft"] > 0
    assert loop.rounds[1].writer == 0
    assert set(loop.rounds[1].seconds) == {"write", "train", "evaluate"}
    assert told["best"] == loop.best().number
    page = (to / "report.html").read_text()
    assert page.count("<svg") >= 1
    assert "round 1" in page
    assert (to / "success.svg").read_text().startswith("<svg")
    seeds = nano.sql("select name, seed from jobs where name like :name order by id", name=f"{loop.name}%")
    assert [name.partition(": ")[2] for name, _ in seeds] == ["selected", "unaided", "write", "selected", "unaided"]
    assert [seed for _, seed in seeds] == [1_000_000, 1_000_000, 101, 1_000_000, 1_000_000]
    served = nano.cli("pool", "unload", f"{loop.name}-1").returncode == 0
    assert served == (told["best"] == 1), "Only the best model stays loaded."


def test_failed_traces_are_compared_but_not_imitated(
    nano: Installation, whole: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one tick no trace of the loop has returned."""
    monkeypatch.setenv("WEAVEGEN_HOME", str(nano.home))
    loop = state(whole[0])
    loop.order = msgspec.structs.replace(loop.order, all_traces=False)
    driver = improve.Driver(whole[0], loop, [], None)

    def collected(*methods: str) -> dict[str, int]:
        folders = {"data": str(tmp_path / "-".join(methods)), "out": ""}
        return driver.collect(dataclasses.replace(loop.order.tune, methods=methods, min_margin=0.0, **folders))

    for methods in (("sft",), ("text",), ("trajectories",), ("dpo", "text")):
        with pytest.raises(UsageError, match="none of the 2 traces succeeded"):
            collected(*methods)
    assert collected("dpo", "kto")["dpo"] > 0


def command_of(to: Path) -> list[str]:
    return [sys.executable, "-m", "weavegen.cli", "improve", str(WEIGHTS), str(SUMS), "--out", str(to), *SMALL]


def killed(nano: Installation, to: Path, reached: Callable[[], bool]) -> None:
    """Start the loop, kill it once `reached` is true, and wait until the programs that it started are over too."""
    with (to.parent / "log").open("ab") as log:
        process = psutil.Popen(command_of(to), env=nano.environ, cwd=nano.home, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 400
        while not reached():
            assert process.poll() is None, (to.parent / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (to.parent / "log").read_text()[-3000:]
            time.sleep(0.02)
        children = process.children(recursive=True)
    finally:
        process.kill()
        process.wait()
    psutil.wait_procs(children, timeout=60)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_killed_in_each_phase_it_ends_with_the_same_adapter(
    nano: Installation, whole: tuple[Path, Any], tmp_path: Path
) -> None:
    to = tmp_path / "loop"

    def enqueued(what: str) -> Callable[[], bool]:
        """Whether the job is in the database, maybe not yet in the state."""
        return lambda: (
            to.exists()
            and (to / rounds.STATE).exists()
            and bool(nano.sql("select id from jobs where name = :name", name=f"{state(to).name} {what}"))
        )

    kills = {
        "measuring the base": enqueued("round 0: selected"),
        "between the jobs of an evaluation": enqueued("round 0: unaided"),
        "writing": enqueued("round 1: write"),
        "training": (to / "round-1" / "plan.json").exists,
        "the adapter is there": (to / "round-1" / ADAPTER).exists,
        "measuring": enqueued("round 1: unaided"),
    }
    for reached in kills.values():
        killed(nano, to, reached)
    told = went_on(nano, to)
    alone, loop = state(whole[0]), state(to)
    jobs = [name for (name,) in nano.sql("select name from jobs where name like :name", name=f"{loop.name}%")]
    assert len(jobs) == len(set(jobs)) == 5, "No job was enqueued twice."
    assert (told["best"], told["stopped"]) == (whole[1]["best"], whole[1]["stopped"])
    for one, other in zip(alone.rounds, loop.rounds, strict=True):
        assert (one.number, one.writer, one.best, one.rows) == (other.number, other.writer, other.best, other.rows)
        assert one.evaluation.success == other.evaluation.success
    for name in ("model.safetensors", "losses.json"):
        paths = [folder / "round-1" / ADAPTER / name for folder in (whole[0], to)]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    assert (to / "best").is_symlink() == (told["best"] == 1)


def test_a_loop_that_is_over_goes_on_with_more_rounds(nano: Installation, whole: tuple[Path, Any]) -> None:
    to = whole[0]
    before = state(to)
    told = went_on(nano, to)
    assert (told["best"], told["stopped"]) == (whole[1]["best"], whole[1]["stopped"])
    assert rounds.differences(before.order, state(to).order) == []
    assert len(state(to).rounds) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--ticks", "3"), "was begun with other values of settings"),
        (("--lora", "4"), "--lora and --norms train different weights"),
        (("--method", "ppo"), "there is no method 'ppo'"),
        (("--seed", "10000"), "give one from 0 to 9999"),
        (("--out", "/"), "has other files"),
        (("-p", "nothing=1"), "no file has the parameter 'nothing'"),
        (("--rounds", "0"), "--rounds"),
    ],
)
def test_bad_input_gives_one_line(nano: Installation, whole: tuple[Path, Any], options: Any, says: str) -> None:
    done = nano.cli("improve", WEIGHTS, SUMS, "--out", whole[0], *SMALL, *options)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_commands_do_not_share_a_folder(nano: Installation, whole: tuple[Path, Any]) -> None:
    with (whole[0] / ".lock").open() as lock:
        subprocess.run(["flock", "-n", str(lock.fileno())], pass_fds=[lock.fileno()], check=True)
        done = nano.cli("improve", WEIGHTS, SUMS, "--out", whole[0], *SMALL)
    assert done.returncode == 2
    assert "another weavegen command holds" in done.stderr


SERVE = """
import os, pathlib, signal, subprocess, sys
own = pathlib.Path(__file__).parent
pid, folder, name = own / "pid", *sys.argv[1:]
if pid.exists():
    os.kill(int(pid.read_text()), signal.SIGKILL)
command = [sys.executable, "-m", "weavegen.cli", "nano", "serve", folder, "--name", name, "--port", sys.argv[0][-8:-3]]
with (own / "served").open("a") as log, (own / "errors").open("ab") as errors:
    server = subprocess.Popen(command, start_new_session=True, stdout=errors, stderr=errors)
    log.write(f"{folder} {name}\\n")
pid.write_text(str(server.pid))
"""


def test_a_server_is_started_anew_with_new_weights(trl_environ: dict[str, str], tmp_path: Path) -> None:
    port = f"{free_port():05d}"
    script, to = tmp_path / f"serve-{port}.py", tmp_path / "loop"
    script.write_text(SERVE)
    subprocess.run([sys.executable, script, WEIGHTS, "first"], check=True)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        environ = trl_environ | {"OPENAI_BASE_URL": url, "PYTHONPATH": str(ROOT)}
        with installed(WEAVEGEN_MODEL=None, **environ) as one:
            told = went_on(one, to, "--serve", f"{sys.executable} {script} {{folder}} {{name}}")
            name = state(to).name
            wrote = one.sql("select j.model, t.status from jobs j join traces t on t.job_id = j.id")
    finally:
        psutil.Process(int((tmp_path / "pid").read_text())).kill()
    assert told["stopped"] == "1 rounds are done"
    assert set(wrote) == {(f"{name}-0", "ended"), (f"{name}-1", "ended")}
    started = [line.split() for line in (tmp_path / "served").read_text().splitlines()]
    assert started == [
        [str(WEIGHTS), "first"],
        [str(WEIGHTS), f"{name}-0"],
        [str(to / "round-1" / ADAPTER), f"{name}-1"],
    ]
