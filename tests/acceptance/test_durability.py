"""Equal seeds give equal traces with one worker, with eight, and with workers that are killed at any moment."""

import contextlib
import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support import TICTACTOE
from tests.support.installation import Installation, kill
from weavegen.services import fleet

KILLS = 20
TRACES = 6


@pytest.fixture(scope="module")
def alone(own_installation: Installation) -> Iterator[Installation]:
    """The installation without the fleet's workers, because each test starts its own."""
    config = own_installation.config
    from weavegen.services import processes

    services = [
        service for name, service in processes.registered(config).items() if name in ("model", "lint", "execute")
    ]
    processes.stop(config, services)
    yield own_installation
    fleet.down(config)


def queues(installation: Installation) -> str:
    return f"control,sample,score,lint,execute,execute.{installation.config.host}"


TRIALS = ("--search", "execute")


def play(installation: Installation, *options: str) -> int:
    # A small window, so that blocks leave it and can be retrieved.
    small = ("--set", "window=12", "--set", "window_kept=6")
    command = ("enqueue", TICTACTOE, "-n", str(TRACES), "--ticks", "5", "--seed", "15", *small, *options)
    return int(installation.json(*command)["job"])


@pytest.fixture(scope="module")
def undisturbed(alone: Installation) -> list[tuple[object, ...]]:
    return by_one_worker(alone)


@pytest.fixture(scope="module")
def undisturbed_with_trials(alone: Installation) -> list[tuple[object, ...]]:
    return by_one_worker(alone, *TRIALS)


def by_one_worker(alone: Installation, *options: str) -> list[tuple[object, ...]]:
    """The blocks that one worker writes."""
    worker = alone.worker("single", queues(alone))
    try:
        job = play(alone, *options)
        alone.wait(job)
    finally:
        kill(worker)
    bodies = alone.bodies(job)
    assert len(bodies) > 100
    assert alone.sql("select 1 from steps where kind = 'retrieve' and jsonb_array_length(result) > 0 limit 1")
    return bodies


def test_eight_workers_write_the_same_as_one(alone: Installation, undisturbed: list[tuple[object, ...]]) -> None:
    workers = [alone.worker(f"eight{number}", queues(alone)) for number in range(8)]
    try:
        job = play(alone)
        alone.wait(job)
    finally:
        for worker in workers:
            kill(worker)
    assert alone.bodies(job) == undisturbed


def test_killed_workers_lose_and_double_nothing(alone: Installation, undisturbed: list[tuple[object, ...]]) -> None:
    assert alone.bodies(by_mortal_workers(alone)) == undisturbed


def test_killed_workers_lose_and_double_no_trials(
    alone: Installation, undisturbed_with_trials: list[tuple[object, ...]]
) -> None:
    job = by_mortal_workers(alone, *TRIALS)
    assert alone.bodies(job) == undisturbed_with_trials
    of_job = "join traces t on t.id = r.trace_id where t.job_id = :job"
    [[tried]] = alone.sql(f"select count(*) from trials r {of_job}", job=job)
    assert tried > 10


def by_mortal_workers(alone: Installation, *options: str) -> int:
    """Write the traces with workers that are killed at any moment. Returns the job."""
    rng = random.Random(1)
    names = itertools.count()

    def start() -> "subprocess.Popen[bytes]":
        return alone.worker(f"mortal{next(names)}", queues(alone), concurrency=4)

    workers = [start() for _ in range(3)]
    killed = 0
    try:
        job = play(alone, *options)
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
    ends = alone.sql("select distinct status, failure_kind, failure from traces where job_id = :job", job=job)
    assert ends == [("ended", None, None)]
    return job


def test_killed_environments_are_rebuilt(alone: Installation, undisturbed: list[tuple[object, ...]]) -> None:
    worker = alone.worker("lasting", queues(alone), concurrency=4)
    killed: set[int] = set()
    try:
        job = play(alone)
        deadline = time.monotonic() + 120
        while alone.sql("select 1 from traces where job_id = :job and status in ('queued', 'running')", job=job):
            assert time.monotonic() < deadline, alone.logs()
            for trace, pid in alone.sql(
                """
                select t.id, e.pid from traces t join environments e on e.trace_id = t.id
                where t.job_id = :job and e.closed_at is null and t.status = 'running' and t.ticks >= 1
                """,
                job=job,
            ):
                if trace not in killed:
                    killed.add(trace)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
    finally:
        kill(worker)
    assert len(killed) == TRACES
    rebuilt = alone.sql(
        "select detail from events e join traces t on t.id = e.trace_id "
        "where t.job_id = :job and e.kind = 'environment rebuilt'",
        job=job,
    )
    assert rebuilt
    assert all(detail.endswith("all came out as before") for [detail] in rebuilt)
    assert alone.bodies(job) == undisturbed


def run_file(alone: Installation, name: str, text: str, *options: str) -> int:
    """Run a bootstrap file with one worker until its trace is over. Returns the job."""
    file = alone.home / name
    file.write_text(text)
    worker = alone.worker("patient", queues(alone), concurrency=4)
    try:
        job = int(alone.json("enqueue", file, "--seed", "1", *options)["job"])
        alone.wait(job)
    finally:
        kill(worker)
    return job


KILLING = """
import os

def action_start(self):
    main = agent.subagent("main", None, "Stay alive", {}, 5)
    main.add_observation_view("Look", look)

def look(self):
    if os.getppid() != 1:  # in a copy, whose parent is the environment's own process
        os.kill(os.getppid(), 9)
    return "alive"

self.add_action("Start", action_start)
"""
"""Each action that is tried kills the environment: the views are shown after it, in the copy."""


def test_trials_that_keep_killing_the_environment_are_given_up(alone: Installation) -> None:
    """After the second time the block is chosen without trials, in no later round either, and the trace goes on."""
    job = run_file(alone, "killing.py", KILLING, "--ticks", "1", *TRIALS)
    of_job = "join traces t on t.id = e.trace_id where t.job_id = :job"
    assert alone.sql("select status, ticks from traces where job_id = :job", job=job) == [("ended", 1)]
    notes = alone.sql(f"select e.detail from events e {of_job} and e.kind = 'not tried'", job=job)
    assert notes
    assert all(detail.startswith("a block of type action: the environment process ") for [detail] in notes), notes
    actions = "select count(*) from blocks e join traces t on t.id = e.trace_id where t.job_id = :job"
    [[written]] = alone.sql(f"{actions} and e.type = 'action'", job=job)
    assert written == len(notes)


SUICIDAL = """
import os

def action_start(self):
    main = agent.subagent("main", None, "Stay alive", {}, 5)
    main.add_observation_view("Look", lambda self: os._exit(1) if agent.current_block_index() > 10 else "alive")

self.add_action("Start", action_start)
"""


def test_a_trace_that_keeps_killing_its_process_ends_with_the_reason(alone: Installation) -> None:
    job = run_file(alone, "suicidal.py", SUICIDAL, "--ticks", "4")
    [(status, kind, failure)] = alone.sql(
        "select status, failure_kind, failure from traces where job_id = :job", job=job
    )
    assert (status, kind) == ("failed", "environment")
    assert "died" in failure
    assert alone.sql("select count(*) > 10 from blocks b join traces t on t.id = b.trace_id where job_id = :j", j=job)


def test_a_trace_without_isolation_records_it(alone: Installation) -> None:
    alone.environ["WEAVEGEN_SANDBOX"] = "none"
    try:
        worker = alone.worker("open", queues(alone), concurrency=4)
        try:
            job = int(alone.json("enqueue", TICTACTOE, "--ticks", "1", "--seed", "1")["job"])
            alone.wait(job)
        finally:
            kill(worker)
    finally:
        del alone.environ["WEAVEGEN_SANDBOX"]
    assert [row["isolated"] for row in alone.json("status", job)] == [False]
    assert "not isolated" in alone.cli("status", job).stdout


CALLING = """
import time

def counted(self):
    if self.get_cache("returning"):  # the task's evaluations are run once more, for the caller
        return 3
    ticks = (self.get_cache("ticks") or 0) + 1
    self.update_cache("ticks", ticks)
    if ticks == 3:
        self.update_cache("returning", True)
        self.return_to_caller({"done": True})
    return ticks

def action_start(self):
    agent.subagent("main", None, "Have it counted", {}, 5)
    counter = agent.subagent("counter", "main", "Count three ticks", {"done": "boolean", "counted": "integer"}, 5)
    counter.block_size = 384
    counter.task.add_evaluation("How many ticks is it?", counted)
    told = generate_outputs_vllm(self.model_name, "Once", 8, n=2)
    counter.add_observation_view("What the model said", lambda self: told)
    late = agent.subagent("late", "main", "Nothing that could be done in a second", {}, 0.01)
    late.add_observation_view("Wait", lambda self: time.sleep(1) or "waited")  # one tick and its time is up
    given = agent.run("counter")
    assert given["counted"] == 3, "Were three ticks counted?"
    return [given, agent.run("late")]

self.add_action("Start", action_start)
"""


def test_subagents_work_while_their_caller_waits_and_its_process_dies(alone: Installation) -> None:
    file = alone.home / "calling.py"
    file.write_text(CALLING)
    worker = alone.worker("caller", queues(alone), concurrency=4)
    killed = False
    try:
        job = int(alone.json("enqueue", file, "--ticks", "6", "--seed", "1")["job"])
        deadline = time.monotonic() + 120
        while alone.sql("select 1 from traces where job_id = :job and status in ('queued', 'running')", job=job):
            assert time.monotonic() < deadline, alone.logs()
            time.sleep(0.1)
            dying = alone.sql(
                "select pid from environments e join ticks k using (trace_id) where e.closed_at is null "
                "and k.subagent = 'counter' and k.finished_at is not null"
            )
            if dying and not killed:
                os.kill(dying[0][0], signal.SIGKILL)
                killed = True
    finally:
        kill(worker)
    assert killed
    [(trace, because, failure)] = alone.sql(
        "select id, ended_because, failure from traces where job_id = :job", job=job
    )
    assert (because, failure) == ("ticks", None)
    [(detail,)] = alone.sql("select detail from events where trace_id = :t and kind = 'environment rebuilt'", t=trace)
    assert detail.endswith("all came out as before")

    returns = alone.sql(
        "select subagent, body, ran from blocks where trace_id = :t and type = 'return' order by index", t=trace
    )
    assert returns == [
        ("main", 'counter returned:\n{"done":true,"counted":3}', None),
        ("main", "late ran out of its 0.01 minutes and returned nothing.", True),
    ]
    turns = alone.sql("select subagent, caller from ticks where trace_id = :t order by number", t=trace)
    assert turns[:4] == [("main", None), *[("counter", 0)] * 3]
    assert turns[4] == ("late", 0)
    assert turns[-1] == ("main", None)
    sizes = alone.sql(
        "select distinct subagent, block_size from blocks where trace_id = :t and block_size is not null", t=trace
    )
    assert ("counter", 384) in sizes
    assert ("main", 768) in sizes
    subagents = alone.sql("select name, completed, returned from subagents where trace_id = :t", t=trace)
    assert ("counter", True, {"done": True, "counted": 3}) in subagents
    shown = alone.cli("show", trace).stdout
    compile(shown, "trace.py", "exec")
    assert "\n#subagent counter\n#startblock type: orientation\n" in shown
