"""Flower with real workers: the text of its rows, and whether their states are true.

With WEAVEGEN_PICTURES=1 it creates the pictures of docs/flower.md again.
"""

import json
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from playwright.sync_api import Browser, expect

from simulation.process import Process
from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation
from tests.support.ports import free_port
from tests.support.waiting import until
from weavegen.services import fleet
from weavegen.services.redis import broker_url

STEP = re.compile(r"trace \d+ tick \d+( \S.*)?( attempt \d+)?")
SAMPLE = re.compile(r"trace \d+ tick \d+ [a-z-]+ round \d+ n=\d+( attempt \d+)?")


@pytest.fixture(scope="module")
def watched() -> Iterator[Installation]:
    """An installation with Flower and without a model server."""
    home = Path(tempfile.mkdtemp(prefix="weavegen-flower-"))
    installation = Installation(home)
    installation.environ |= {"WEAVEGEN_FLOWER": str(free_port()), "FLOWER_UNAUTHENTICATED_API": "true"}
    try:
        done = installation.cli("up", "--model", "none")
        assert done.returncode == 0, done.stderr
        eventually(lambda: read(installation, "healthcheck") == b"OK")
        # Flower asks workers for their tasks as soon as it is up. It has no events of earlier tasks.
        eventually(lambda: len(json.loads(read(installation, "api/workers?refresh=1"))) == 3)
        yield installation
    finally:
        fleet.down(installation.config)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def job(watched: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A job that ran while there was no model server. It has ended, and so has a job that kills its environment."""
    sim = Process(tmp_path_factory.mktemp("sim"), "sim")
    few = ("-n", "2", "--ticks", "2", "--seed", "3")
    try:
        # The command has a server, the workers have none.
        number = int(watched.json("enqueue", TICTACTOE, *few, OPENAI_BASE_URL=sim.url)["job"])
        eventually(lambda: any(task["state"] == "RETRY" for task in tasks(watched)))
        assert {task["state"] for task in tasks(watched)} <= {"SUCCESS", "RETRY", "STARTED", "RECEIVED"}
        watched.json("pool", "add", sim.url)
        watched.wait(number)
        assert [task for task in tasks(watched) if task["state"] == "FAILURE"] == []
        with Celery(broker=broker_url(watched.config), set_as_current=False) as producer:
            # Sent by Celery, because the command would try the bootstrap first and refuse it.
            producer.send_task("weavegen.enqueue", args=["import os\nos._exit(1)\n"], queue="control")
        eventually(lambda: any(task["state"] == "FAILURE" for task in tasks(watched)))
        yield number
    finally:
        sim.kill()


def test_rows_name_the_step_and_the_trace(watched: Installation, job: int) -> None:
    found = tasks(watched)
    assert all(task["name"].startswith("weavegen.") for task in found)
    by_kind: dict[str, list[str]] = {}
    for task in found:
        by_kind.setdefault(task["name"].removeprefix("weavegen."), []).append(task["args"])
    assert {"sample", "lint", "score", "execute", "sweep"} <= by_kind.keys()
    assert all(SAMPLE.fullmatch(args) for args in by_kind["sample"])
    assert all(STEP.fullmatch(args) for kind in ("lint", "score", "execute") for args in by_kind[kind])
    assert any(args.startswith("trace 1 tick 1 action round 0 n=4") for args in by_kind["sample"])
    assert "trace 1" in by_kind["close"]


def test_expected_errors_are_retries_with_their_reason(watched: Installation, job: int) -> None:
    again = [task for task in tasks(watched) if task["state"] == "RETRY"]
    assert {task["name"] for task in again} <= {"weavegen.sample", "weavegen.score", "weavegen.execute"}
    said = re.compile(r"again in [\d.]+ s: the pool has no model server: add one with `weavegen pool add URL`")
    assert all(said.fullmatch(task["exception"]) for task in again)
    # The message that the sweeper sends later is a row of its own, and succeeds.
    done = {step(task) for task in tasks(watched) if task["state"] == "SUCCESS"}
    assert {step(task) for task in again} <= done
    assert watched.sql("select count(*) from traces where job_id = :job and status = 'ended'", job=job) == [(2,)]


def test_failures_are_failed_steps(watched: Installation, job: int) -> None:
    failed = [task for task in tasks(watched) if task["state"] == "FAILURE"]
    in_database = watched.sql("select failure_kind, failure from steps where status = 'failed'")
    assert len(failed) == len(in_database) > 0
    for kind, reason in in_database:
        assert any(f"{kind}: {reason}" in task["exception"] for task in failed)
    assert "Traceback" not in watched.logs()


def test_it_is_read_only_and_listens_only_on_this_machine(watched: Installation, job: int) -> None:
    request = urllib.request.Request(f"{address(watched)}/api/worker/shutdown/lint@x", method="POST", data=b"")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=10)
    service = next(service for service in fleet.running(watched.config) if service.name == "flower")
    assert "--address=127.0.0.1" in service.command


def test_a_port_in_use_belongs_to_another_installation(watched: Installation) -> None:
    home = Path(tempfile.mkdtemp(prefix="weavegen-flower-"))
    other = Installation(home)
    other.environ["WEAVEGEN_FLOWER"] = watched.environ["WEAVEGEN_FLOWER"]
    try:
        parts = {part["name"]: part for part in other.json("up", "--model", "none")}
        assert parts["flower"]["started"]
        assert parts["flower"]["url"] != address(watched)
        assert {part["name"]: part["started"] for part in other.json("up", "--model", "none")}["flower"] is False
    finally:
        assert "flower" in {service.name for service in fleet.down(other.config)}
        shutil.rmtree(home, ignore_errors=True)


def test_pictures(watched: Installation, job: int, browser: Browser, tmp_path: Path) -> None:
    folder = ROOT / "docs" / "images" if os.environ.get("WEAVEGEN_PICTURES") else tmp_path
    folder.mkdir(exist_ok=True)
    page = browser.new_page(viewport={"width": 1660, "height": 640})
    for name, search in (("tasks", "args:trace"), ("retries", "state:RETRY"), ("failures", "state:FAILURE")):
        page.goto(f"{address(watched)}/tasks")
        page.fill("input[type=search]", search)
        rows = page.locator("#tasks-table tbody tr")
        expect(rows.filter(has_not_text=search.partition(":")[2])).to_have_count(0)
        expect(rows.first).to_contain_text("weavegen.")
        assert page.locator("#tasks-table thead").inner_text().split()[:3] == ["NAME", "ARGS", "STATE"]
        picture = folder / f"flower-{name}.png"
        page.screenshot(path=picture)
        assert picture.stat().st_size < 300_000
    page.context.close()


def step(task: dict[str, Any]) -> str:
    """The step of a task, without the number of the attempt."""
    return str(task["args"]).split(" attempt ")[0]


def tasks(watched: Installation) -> list[dict[str, Any]]:
    """The rows whose task name Flower has received."""
    found = json.loads(read(watched, "api/tasks?limit=20000"))
    return [task for task in found.values() if task["name"]]


def read(watched: Installation, path: str) -> bytes:
    with urllib.request.urlopen(f"{address(watched)}/{path}", timeout=10) as answer:
        return bytes(answer.read())


def address(watched: Installation) -> str:
    return f"http://127.0.0.1:{watched.environ['WEAVEGEN_FLOWER']}"


def eventually(true: Callable[[], bool]) -> None:
    """Like `until`, but no answer counts as false."""

    def holds() -> bool:
        try:
            return true()
        except OSError:
            return False

    until(holds)
