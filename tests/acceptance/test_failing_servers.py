"""Failing model servers with real workers: what each command shows within 15 seconds, and that nothing is lost."""

import contextlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from simulation.process import Process
from tests.support import ROOT
from tests.support.installation import Installation, installed
from tests.support.malformed_answers import MALFORMED
from tests.support.raw_server import Front, answer
from tests.support.waiting import until
from weavegen.errors import ModelError, TransientError
from weavegen.pool.http import Http
from weavegen.pool.served import list_models
from weavegen.services.model_server import NANO
from weavegen.services.processes import registered
from weavegen_nano import WEIGHTS

OUT_OF_MEMORY = answer({"error": {"message": "CUDA out of memory"}}, "500 Internal Server Error")
SEEN_SECONDS = 15
WAITING = """
select s.failure from steps s join traces t on t.id = s.trace_id
where t.job_id = :job and s.status in ('ready', 'running') and s.failure is not null
"""


@pytest.fixture(scope="module")
def sim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    process = Process(tmp_path_factory.mktemp("sim"), "a", "--inter-token", "1")
    yield process
    process.kill()


@pytest.fixture(scope="module")
def front(sim: Process) -> Iterator[Front]:
    with Front(sim.url) as server:
        yield server


@pytest.fixture(scope="module")
def fleet(front: Front) -> Iterator[Installation]:
    with installed(OPENAI_BASE_URL=front.url) as installation:
        yield installation


@pytest.fixture(autouse=True)
def healed(front: Front) -> Iterator[None]:
    yield
    heal(front)


def heal(front: Front) -> None:
    front.reply, front.spoil = lambda request: None, lambda completion: None


def play(fleet: Installation, ticks: int = 3, traces: int = 4) -> int:
    options = ("-n", str(traces), "--ticks", str(ticks), "--seed", "7")
    return int(fleet.json("enqueue", ROOT / "bootstraps" / "tictactoe.py", *options)["job"])


def ended(fleet: Installation, job: int, traces: int = 4) -> None:
    """Wait for the end of a job, and check that it lost nothing."""
    fleet.wait(job, 280)
    assert fleet.sql("select status, count(*) from traces where job_id = :job group by 1", job=job) == [
        ("ended", traces)
    ]
    assert fleet.sql("select count(*) from scores where score is null") == [(0,)]


def metric(fleet: Installation, name: str) -> float:
    """A figure of the first server."""
    text = fleet.cli("metrics").stdout
    found = re.search(rf"^weavegen_{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else -1.0


def reasons(fleet: Installation, job: int) -> str:
    return "\n".join(row[0] for row in fleet.sql(WAITING, job=job))


def pool(fleet: Installation) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of `weavegen pool`, and the servers."""
    done = fleet.cli("pool", "--seconds", "0.1", "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_pool_that_answers_500_is_seen_everywhere(fleet: Installation, front: Front) -> None:
    job = play(fleet)
    until(lambda: front.requests > 20, "the job does not begin")
    front.reply = lambda request: OUT_OF_MEMORY
    until(lambda: pool(fleet)[1][0]["state"] == "failing", "the pool looks healthy", seconds=SEEN_SECONDS)
    code, [server] = pool(fleet)
    assert code == 1
    assert server["errors_since_ok"] >= 3
    assert server["last_error"] == f"{front.url}/completions answered 500: CUDA out of memory"
    for command in (("pool",), ("pool", "list"), ("top", "--once"), ("doctor",)):
        done = fleet.cli(*command)
        assert "answered 500: CUDA out of memory" in done.stdout, command
        assert done.returncode == int(command in (("pool",), ("doctor",))), command
    assert metric(fleet, f'server_failing{{server="{front.url}"}}') == 1
    assert metric(fleet, f'server_errors_total{{kind="status",server="{front.url}"}}') >= 3
    until(lambda: "500: CUDA out of memory" in reasons(fleet, job), "no step says why it waits", seconds=SEEN_SECONDS)
    heal(front)
    ended(fleet, job)
    assert pool(fleet)[0] == 0
    assert fleet.cli("doctor").returncode == 0


def test_a_failing_server_beside_a_healthy_one(fleet: Installation, front: Front, sim: Process) -> None:
    fleet.json("pool", "add", sim.url, "--owner", "grace")
    front.reply = lambda request: OUT_OF_MEMORY
    job = play(fleet)
    until(lambda: "failing" in [row["state"] for row in pool(fleet)[1]], "nobody sees it", seconds=SEEN_SECONDS)
    code, rows = pool(fleet)
    assert code == 0, "a server is left"
    assert [row["state"] in ("up", "full") for row in rows] == [False, True]
    assert fleet.cli("doctor").returncode == 1
    ended(fleet, job)
    fleet.json("pool", "remove", sim.url)


@pytest.mark.timeout(600)
def test_malformed_answers_fail_no_trace(fleet: Installation, front: Front) -> None:
    """More than 200 malformed answers of more than 30 kinds, with right ones in between."""
    heavy = re.compile("endless|200 MB|-1 bytes|bomb")  # these cost this machine more than the workers
    kinds = itertools.cycle([name for name in MALFORMED if not heavy.search(name)])
    given: list[str] = []

    def reply(request: dict[str, Any]) -> Any:
        if front.requests % 2 == 0:
            return None
        given.append(next(kinds))
        return MALFORMED[given[-1]](request)

    front.reply = reply
    job = play(fleet, traces=8)
    until(lambda: len(given) > 200, "too few malformed answers", seconds=400)
    heal(front)
    ended(fleet, job, 8)
    assert len(set(given)) >= 30


def test_scores_without_logprobs_wait_for_better_ones(fleet: Installation, front: Front) -> None:
    def without_logprobs(completion: dict[str, Any]) -> None:
        for choice in completion["choices"]:
            choice["logprobs"] = None

    front.spoil = without_logprobs
    job = play(fleet)
    until(lambda: "without the logprobs" in reasons(fleet, job), "no step says why it waits", seconds=60)
    until(lambda: pool(fleet)[0] == 1, "the pool looks healthy", seconds=SEEN_SECONDS)
    scores = "select count(*) from scores s join traces t on t.id = s.trace_id where t.job_id = :job"
    assert fleet.sql(scores, job=job) == [(0,)]
    assert fleet.sql("select count(*) from traces where job_id = :job and status <> 'running'", job=job) == [(0,)]
    heal(front)
    ended(fleet, job)


def test_scores_without_mass_pause_the_job(fleet: Installation, front: Front) -> None:
    def without_mass(completion: dict[str, Any]) -> None:
        for choice in completion["choices"]:
            logprobs = choice["logprobs"]
            if logprobs and logprobs["top_logprobs"]:
                ids = logprobs["top_logprobs"][0]
                logprobs["top_logprobs"] = [dict.fromkeys(ids, -9999.0)]

    front.spoil = without_mass
    job = play(fleet, traces=5)
    until(lambda: fleet.json("status")[0]["state"] == "paused", "the job is not paused", seconds=90)
    line = fleet.cli("status").stdout
    assert "gives no probability to yes or no" in line
    assert fleet.sql(
        "select count(*) from scores s join traces t on t.id = s.trace_id where t.job_id = :job", job=job
    ) == [(0,)]
    heal(front)
    fleet.json("resume", str(job))
    fleet.wait(job)
    query = "select status, count(*) from traces where job_id = :job group by 1 order by 1"
    assert fleet.sql(query, job=job) == [("ended", 3), ("failed", 2)]


def test_retry_after(fleet: Installation, front: Front) -> None:
    front.reply = lambda request: answer(b"slow down", "429 Too Many Requests", "Retry-After: 4")
    job = play(fleet)
    until(lambda: "answered 429: slow down" in reasons(fleet, job), "no step says why it waits", seconds=60)
    asked = front.requests
    time.sleep(8)
    assert front.requests <= asked + 2 * 4, "it is asked more often than it wants"
    heal(front)
    ended(fleet, job)


def test_traces_go_on_with_an_adapter_that_their_server_forgot() -> None:
    """The server ends and is started again by the supervisor; then everything is stopped and started again."""
    with installed(WEAVEGEN_MODEL="nano") as one:
        one.json("pool", "load", "twin", WEIGHTS)
        sums = ROOT / "bootstraps" / "sums.py"
        job = one.json("enqueue", sums, "-n", "6", "--ticks", "4", "--seed", "7", "--model", "twin")["job"]
        one.until("select count(*) > 0 from candidates")
        server = registered(one.config)[NANO]
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: registered(one.config)[NANO].pid != server.pid, "the supervisor does not start it again")

        def served() -> bool:
            with contextlib.suppress(ModelError, TransientError):
                return "twin" in [model.id for model in list_models(str(server.url), Http("EMPTY", 5.0))]
            return False

        until(served, "the adapter is not loaded again", seconds=120)
        for command in ("down", "up"):
            assert one.cli(command).returncode == 0
        one.wait(job, 280)
        assert one.sql("select status, count(*) from traces group by 1") == [("ended", 6)]
        assert one.cli("pool", "unload", "twin").returncode == 0
        assert one.sql("select count(*) from adapters") == [(0,)]
