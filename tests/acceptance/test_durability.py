"""Equal seeds give equal traces, with one worker, with eight, and with workers killed at any moment."""

import itertools
import random
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import TICTACTOE, Installation, kill
from weavegen.services import fleet

KILLS = 20
TRACES = 6


@pytest.fixture(scope="module")
def alone(installation: Installation) -> Iterator[Installation]:
    """The installation without the fleet's workers: each test starts its own."""
    config = installation.config
    from weavegen.services import processes

    services = [
        service for name, service in processes.registered(config).items() if name in ("model", "lint", "execute")
    ]
    processes.stop(config, services)
    yield installation
    fleet.down(config)


def queues(installation: Installation) -> str:
    return f"control,sample,score,lint,execute,execute.{installation.config.host}"


def play(installation: Installation) -> int:
    # A small window, so that blocks leave it and retrieval has something to find.
    small = ("--set", "window=12", "--set", "window_kept=6")
    command = ("enqueue", TICTACTOE, "-n", str(TRACES), "--ticks", "5", "--seed", "11", *small)
    return int(installation.json(*command)["job"])


@pytest.fixture(scope="module")
def undisturbed(alone: Installation) -> list[tuple[object, ...]]:
    """What one worker writes."""
    worker = alone.worker("single", queues(alone))
    try:
        job = play(alone)
        alone.wait(job)
    finally:
        kill(worker)
    bodies = alone.bodies(job)
    assert len(bodies) > 100
    assert alone.sql("select 1 from steps where kind = 'retrieve' and jsonb_array_length(result) > 0 limit 1")
    return bodies


def test_eight_workers_write_what_one_writes(alone: Installation, undisturbed: list[tuple[object, ...]]) -> None:
    workers = [alone.worker(f"eight{number}", queues(alone)) for number in range(8)]
    try:
        job = play(alone)
        alone.wait(job)
    finally:
        for worker in workers:
            kill(worker)
    assert alone.bodies(job) == undisturbed


def test_killed_workers_lose_and_double_nothing(
    alone: Installation, undisturbed: list[tuple[object, ...]]
) -> None:
    rng = random.Random(1)
    names = itertools.count()

    def start() -> "subprocess.Popen[bytes]":
        return alone.worker(f"mortal{next(names)}", queues(alone), concurrency=4)

    workers = [start() for _ in range(3)]
    killed = 0
    try:
        job = play(alone)
        deadline = time.monotonic() + 240
        while alone.sql("select 1 from traces where job_id = :job and status in ('queued', 'running')", job=job):
            assert time.monotonic() < deadline, alone.logs()
            time.sleep(rng.uniform(0.1, 0.9))
            if killed < KILLS and len(alone.bodies(job)) > killed * 8:
                victim = rng.randrange(len(workers))
                kill(workers[victim])
                workers[victim] = start()
                killed += 1
    finally:
        for worker in workers:
            kill(worker)
    assert killed == KILLS
    assert alone.sql("select distinct status from traces where job_id = :job", job=job) == [("ended",)]
    assert alone.bodies(job) == undisturbed
