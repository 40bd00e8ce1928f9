"""Jobs are controlled, stopped, upgraded and moved while real workers run them, and their traces stay the same."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation, kill
from tests.support.waiting import until
from weavegen.cli import jobs as jobs_cli
from weavegen.cli import operate
from weavegen.database import Statement
from weavegen.errors import UsageError
from weavegen.services import fleet, model_server, processes
from weavegen.store import jobs, urls
from weavegen.store.jobs import Order
from weavegen.store.session import pooled

TRACES = 2
TICKS = 2


@pytest.fixture
def up(own_installation: Installation) -> Installation:
    """An installation whose services and workers run, whatever state the previous test left."""
    if not {*fleet.WORKERS, fleet.BEAT} <= {service.name for service in fleet.running(own_installation.config)}:
        done = own_installation.cli("up")
        assert done.returncode == 0, done.stderr
    return own_installation


def play(installation: Installation, ticks: int = TICKS, n: int = TRACES) -> int:
    return int(installation.json("enqueue", TICTACTOE, "-n", str(n), "--ticks", str(ticks), "--seed", "5")["job"])


@pytest.fixture(scope="module")
def undisturbed(own_installation: Installation) -> list[tuple[Any, ...]]:
    job = play(own_installation)
    own_installation.wait(job)
    bodies = own_installation.bodies(job)
    assert len(bodies) > 20
    return bodies


def half_way(installation: Installation, job: int) -> None:
    """Wait until each trace of the job has sampled something and is far from its end."""
    installation.until(
        "select count(*) = :n from traces t where job_id = :job and exists "
        "(select from steps s where s.trace_id = t.id and s.kind = 'sample' and s.status = 'done')",
        job=job,
        n=TRACES,
    )
    assert open_traces(installation, job) == TRACES


def open_traces(installation: Installation, job: int) -> int:
    query = "select count(*) from traces where job_id = :job and status = 'running'"
    return int(installation.sql(query, job=job)[0][0])


def at_once(installation: Installation, command: Callable[..., object], *arguments: Any) -> None:
    """Run a command in this process: a process of its own takes a second to start, in which a job may end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEAVEGEN_HOME", str(installation.home))
        command(*arguments)


def write(installation: Installation, query: str, **parameters: Any) -> None:
    db = pooled(urls.database_url(installation.config))
    with db.begin() as conn:
        conn.execute(Statement(query), parameters)
    db.close()


def events(installation: Installation, job: int) -> list[str]:
    query = "select kind from events e join traces t on t.id = e.trace_id where t.job_id = :job order by 1"
    return [kind for [kind] in installation.sql(query, job=job)]


STEPS = "select s.* from steps s join traces t on t.id = s.trace_id where t.job_id = :job"


def test_a_paused_job_stops_and_continues_without_a_difference(
    up: Installation, undisturbed: list[tuple[Any, ...]]
) -> None:
    job = play(up)
    half_way(up, job)
    at_once(up, operate.pause, job)
    up.until(f"select count(*) = 0 from ({STEPS}) s where status = 'running'", job=job)
    still = f"select sum(claims), max(send_after), count(*) from ({STEPS}) s"
    before = up.sql(still, job=job)
    pids = up.sql("select pid from environments where closed_at is null")
    assert len(pids) == TRACES
    time.sleep(1.5)  # the sweeper runs every second
    assert up.sql(still, job=job) == before
    assert open_traces(up, job) == TRACES
    assert up.cli("pause", str(job)).stdout == f"nothing to do: job {job} is paused\n"
    assert all(Path(f"/proc/{pid}").exists() for [pid] in pids)
    assert up.cli("resume").stdout == f"active: job {job}\n"
    up.wait(job)
    assert up.bodies(job) == undisturbed
    assert events(up, job) == ["ended"] * TRACES + ["started"] * TRACES


def test_a_job_is_retuned_while_it_runs(up: Installation) -> None:
    job = play(up, ticks=60)
    half_way(up, job)
    at_once(up, operate.retune, job, ["ticks=2", "rounds=[3]", "action.rounds=[5]"])
    for wrong in ("ticks", "tricks=1", "ticks=soon", "action.ticks=1", "window=1"):
        with pytest.raises(UsageError):
            at_once(up, operate.retune, job, [wrong])
    up.wait(job)
    assert up.sql("select distinct status, ended_because, ticks < 4 from traces where job_id = :j", j=job) == [
        ("ended", "ticks", True)
    ]
    assert "tick restarted" not in events(up, job)
    assert up.sql("select max(revision) from job_settings") == [(1,)]
    done = up.cli("retune", str(job), "ticks=soon")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("weavegen: settings: ")


def enqueued(installation: Installation, source: str, n: int, **settings: Any) -> int:
    """A job that is written without a trial, with settings that may be invalid."""
    db = pooled(urls.database_url(installation.config))
    values: dict[str, Any] = {"name": "raw", "agent": "weave", "model": None, "seed": 5, "version": "9.9"}
    with db.begin() as conn:
        job = jobs.enqueue(conn, [Order("a.py", source)] * n, **values, settings=settings)
    db.close()
    return job


def test_a_failed_trace_is_retried_after_its_cause_is_repaired(
    up: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    # As a newer version might have written it.
    job = enqueued(up, TICTACTOE.read_text(), 3, ticks=1, warp=9)
    other = play(up, ticks=1, n=1)
    up.until(f"select count(*) > 1 from ({STEPS}) s", job=other)
    at_once(up, operate.pause, other)
    up.until(f"select count(*) = 0 from ({STEPS}) s where status = 'running'", job=other)
    write(up, "update steps set kind = 'ponder' where status = 'ready'")
    at_once(up, operate.resume, other)
    up.wait(job)
    up.wait(other)  # neither job disturbs the workers
    assert up.sql("select status from traces where job_id = :job", job=other) == [("ended",)]
    assert events(up, other) == ["ended", "started", "tick restarted"]
    [(status, kind, failure)] = up.sql(
        "select distinct status, failure_kind, failure from traces where job_id = :job", job=job
    )
    assert (status, kind) == ("failed", "bug")
    assert "`warp`" in failure
    assert "upgrade the workers" in failure

    for wrong in ("ticks <", "nonsense = 1", "id in (delete from traces returning id)", "ticks"):
        with pytest.raises(UsageError, match="--where: the query failed"):
            at_once(up, operate.retry, None, wrong)
    for options in ((None, None), (999, None)):
        with pytest.raises(UsageError):
            at_once(up, operate.retry, *options)
    everything = "failure like '%version%' -- and more"
    dry = up.cli("retry", "--job", str(job), "--where", everything, "--dry-run")
    assert dry.stdout == "3 failed traces match: 3 would be queued\n"

    write(up, "update jobs set settings = settings - 'warp' where id = :job", job=job)
    at_once(up, operate.drain, job)
    capsys.readouterr()
    at_once(up, operate.retry, job, "number < 3) or (number = 1")
    assert capsys.readouterr().out == (
        f"2 failed traces match: 2 queued once more\njob {job} is draining: they start after  weavegen resume {job}\n"
    )
    at_once(up, operate.resume, job)
    assert len(up.json("retry", "--where", everything)["retried"]) == 1
    up.wait(job)
    rows = up.sql("select number, status, retry_of - min(id) over () + 1 from traces where job_id = :j", j=job)
    failed = [(number, "failed", None) for number in (1, 2, 3)]
    assert sorted(rows) == failed + [(number, "ended", number - 3) for number in (4, 5, 6)]
    capsys.readouterr()
    at_once(up, operate.retry, None, "true")
    assert capsys.readouterr().out == (
        "3 failed traces match, 3 of them left out (a retry of them is open or has ended): 0 queued once more\n"
    )


def stop_workers(installation: Installation) -> None:
    """Stop the fleet's workers, so that a worker started in another way gets all steps."""
    registered = processes.registered(installation.config)
    workers = [registered[name] for name in fleet.WORKERS if name in registered]
    processes.stop(installation.config, workers, grace=installation.config.drain)


def by_hand(
    installation: Installation, module: str, source: str = "from tasks import app", **environ: str
) -> "subprocess.Popen[bytes]":
    """A worker for all steps, whose Celery app comes from a module with this text."""
    (installation.home / f"{module}.py").write_text(source)
    environ = {"PYTHONPATH": f"{installation.home}:{ROOT}", "WEAVEGEN_LEASE": "300"} | environ
    queues = f"control,sample,score,lint,execute,execute.{installation.config.host}"
    options = ["worker", "-Q", queues, "-P", "threads", "-c", "4", "-n", f"{module}@test", "-l", "WARNING"]
    with (installation.config.logs / f"{module}.log").open("ab") as log:
        return subprocess.Popen(
            [Path(sys.executable).parent / "celery", "-A", module, *options],
            env=installation.environ | environ,
            cwd=installation.home,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


CHANGED = """
from tasks import app
from weavegen import agents
from weavegen.kernel.steps import Sample
import msgspec

old = agents.AGENTS["weave"].program

def changed(tick):
    \"\"\"The same program, but that it wants one candidate more of each round.\"\"\"
    program, answer = old(tick), None
    try:
        while True:
            asked = program.send(answer)
            if isinstance(asked, Sample):
                asked = msgspec.structs.replace(asked, n=asked.n + 1)
            try:
                answer = yield asked
            except Exception as error:
                asked = program.throw(error)
                answer = yield asked
    except StopIteration as stop:
        return stop.value

agents.AGENTS["weave"] = agents.Agent(changed)
"""


def test_an_upgrade_restarts_ticks_but_no_traces(up: Installation, undisturbed: list[tuple[Any, ...]]) -> None:
    job = play(up)
    half_way(up, job)
    at_once(up, operate.pause, job)
    up.until(f"select count(*) = 0 from ({STEPS}) s where status = 'running'", job=job)
    stop_workers(up)
    finished = dict(up.sql("select id, ticks from traces where job_id = :job", job=job))
    # If a tick has not yet requested a sample, the changed program does not differ from its journal.
    sampled = f"select distinct s.trace_id from ({STEPS} and s.tick = t.ticks + 1) s where kind = 'sample'"
    differing = {trace for [trace] in up.sql(sampled, job=job)}
    assert differing
    worker = by_hand(up, "newer_version", CHANGED)
    try:
        at_once(up, operate.resume, job)
        up.wait(job)
    finally:
        kill(worker)
    assert up.sql("select distinct status, ended_because from traces where job_id = :job", job=job) == [
        ("ended", "ticks")
    ]
    happened = events(up, job)
    assert happened.count("tick restarted") == len(differing)
    for trace, ticks in finished.items():
        runs = dict(up.sql("select number, run from ticks where trace_id = :t", t=trace))
        over = ticks + 1 if trace in differing else None
        assert runs == {number: int(number == over) for number in range(TICKS + 1)}
    # Ticks that were finished before are unchanged.
    kept = min(finished.values())
    first = "select min(k.first_block) from ticks k join traces t on t.id = k.trace_id where t.job_id = :j"
    [(end,)] = up.sql(f"{first} and k.number > :k", j=job, k=kept)
    assert [row for row in up.bodies(job) if row[1] < end] == [row for row in undisturbed if row[1] < end]


SLEEPY = """
import time

def action_sleep(self):
    agent.subagent("main", None, "Sleep", {}, 5)
    time.sleep(25)

self.add_action("Sleep", action_sleep)
"""


def test_a_stopped_worker_gives_back_steps_that_take_too_long(own_installation: Installation) -> None:
    stop_workers(own_installation)
    worker = by_hand(own_installation, "hasty", WEAVEGEN_DRAIN="0.5")
    try:
        job = enqueued(own_installation, SLEEPY, 1, ticks=1)
        own_installation.until(f"select count(*) = 1 from ({STEPS}) s where status = 'running'", job=job)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        kill(worker)
    [(status, claims)] = own_installation.sql(f"select status, claims from ({STEPS}) s", job=job)
    assert (status, claims) == ("ready", 1)
    at_once(own_installation, jobs_cli.cancel, job)


def test_a_job_continues_after_down_and_up(up: Installation) -> None:
    job = up.json("enqueue", TICTACTOE, "-n", "4", "--ticks", "12")["job"]
    while up.sql("select sum(blocks) < 40 from traces where job_id = :job", job=job) == [(True,)]:
        time.sleep(0.1)
    assert up.cli("down").returncode == 0
    assert up.cli("up").returncode == 0
    up.wait(job)
    assert up.sql("select distinct status from traces where job_id = :job", job=job) == [("ended",)]


def test_traces_that_are_cancelled_after_down_leave_nothing_on_the_disk(up: Installation) -> None:
    """`down` ends their environments, so the end of the trace finds nothing open that it would close."""
    job = play(up, ticks=50)
    half_way(up, job)
    traces = {str(trace) for (trace,) in up.sql("select id from traces where job_id = :job", job=job)}
    assert up.cli("down").returncode == 0
    assert traces <= {path.name for path in up.config.workspaces.iterdir()}
    up.json("cancel", str(job))
    assert up.cli("up").returncode == 0
    until(lambda: not any(up.config.workspaces.iterdir()), "empty workspaces")
    assert up.json("audit", "--job", str(job))["damage"] == 0


def test_down_and_up_in_the_middle_change_nothing(up: Installation, undisturbed: list[tuple[Any, ...]]) -> None:
    # The model is slow, so that samples are in flight, and one step takes longer than `down` waits. `down` waits as
    # long as its own setting says, not as long as the one with which the workers were started.
    stop_workers(up)
    processes.stop(up.config, [processes.registered(up.config)[model_server.SIM]])
    done = up.cli("up", "--model", "sim", "--sim-options", "--inter-token 10", WEAVEGEN_DRAIN="0.1")
    assert done.returncode == 0, done.stderr
    job = play(up)
    sleepy = enqueued(up, SLEEPY, 1, ticks=1)
    half_way(up, job)
    up.until(f"select count(*) = 1 from ({STEPS}) s where status = 'running'", job=sleepy)
    sampling = f"select s.id from ({STEPS}) s where status = 'running' and kind = 'sample'"
    up.until(f"select exists ({sampling})", job=job)
    in_flight = [id for [id] in up.sql(sampling, job=job)]
    done = up.cli("down", "--wait", "6")
    assert done.returncode == 0, done.stderr
    steps = up.json("sql", "select id, trace_id, status, claims from steps")
    assert {step["status"] for step in steps if step["id"] in in_flight} <= {"done"}
    assert all(step["status"] != "running" for step in steps)
    [given_back] = [step for step in steps if (step["status"], step["claims"]) == ("ready", 1)]
    assert given_back["trace_id"] == max(step["trace_id"] for step in steps)
    assert up.json("sql", "select count(*) as n from environments where closed_at is null") == [{"n": 0}]

    # Leases last longer than the test, so nothing waits for one.
    done = up.cli("up", WEAVEGEN_LEASE="300")
    assert done.returncode == 0, done.stderr
    up.until(f"select max(claims) = 2 from ({STEPS}) s", job=sleepy)
    at_once(up, jobs_cli.cancel, sleepy)
    up.wait(job, 60)
    assert up.bodies(job) == undisturbed
    assert "tick restarted" not in events(up, job)
    assert up.sql("select ended_because from traces where job_id = :job", job=job) == [("ticks",)] * TRACES


@pytest.fixture
def elsewhere() -> Iterator[Installation]:
    """A new installation with another host name."""
    home = Path(tempfile.mkdtemp(prefix="weavegen-moved-"))
    installation = Installation(home)
    installation.environ["WEAVEGEN_HOST"] = "elsewhere"
    yield installation
    fleet.down(installation.config)
    shutil.rmtree(home, ignore_errors=True)


def test_a_backup_of_running_traces_continues_on_another_host(
    up: Installation, elsewhere: Installation, undisturbed: list[tuple[Any, ...]]
) -> None:
    for command in (operate.backup, operate.restore):
        with pytest.raises(UsageError):
            at_once(up, command, up.home / "absent" / "file")
    job = play(up)
    half_way(up, job)
    file = up.home / "corpus.dump"
    at_once(up, operate.backup, file)
    assert open_traces(up, job) == TRACES
    assert file.stat().st_size > 10_000
    assert os.listdir(up.home).count("corpus.dump.part") == 0
    with pytest.raises(UsageError, match="jobs here already"):
        at_once(up, operate.restore, file)
    junk = elsewhere.home / "junk"
    junk.write_text("no backup")
    refused = elsewhere.cli("restore", junk)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)

    restored = elsewhere.json("restore", file)
    assert restored["running"] == TRACES
    assert elsewhere.json("sql", "select count(*) as n from traces where status = 'running'") == [{"n": TRACES}]
    done = elsewhere.cli("up")
    assert done.returncode == 0, done.stderr
    elsewhere.wait(job)
    assert elsewhere.bodies(job) == undisturbed
    assert events(elsewhere, job).count("environment rebuilt") == TRACES
    up.wait(job)
    assert up.bodies(job) == undisturbed
