"""deploy/compose.yaml with all its parts in separate containers, and an execute host that is lost."""

from urllib.error import HTTPError
from urllib.request import HTTPBasicAuthHandler, HTTPPasswordMgrWithDefaultRealm, build_opener

import pytest

from tests.image.podman import NEXT, OURS, SECRETS, Stack, good, podman
from weavegen.version import __version__

pytestmark = pytest.mark.timeout(900)
DEAD = "execute-1"
"""The name of the host that is killed; its service is `execute`."""
OPEN = f"""
    select count(*) as n from environments join traces t on t.id = trace_id
    where environments.host = '{DEAD}' and closed_at is null and t.ticks >= 1 and t.job_id ="""
"""Environments on that host, of the traces of a job that have acted."""


def page(address: str, path: str, user: str = "", password: str = "") -> str:
    """The text of a page. Raises HTTPError."""
    passwords = HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, f"http://{address}/", user, password)
    with build_opener(HTTPBasicAuthHandler(passwords)).open(f"http://{address}{path}", timeout=30) as response:
        return str(response.read().decode())


def test_a_job_runs_through_the_containers(stack: Stack) -> None:
    job = stack.enqueue("execute", "-n", "4", "--ticks", "4", "--seed", "3")
    stack.wait(job)
    [counted] = stack.sql(f"select count(*) as n, min(blocks) as blocks from traces where job_id = {job}")
    assert counted["n"] == 4
    assert counted["blocks"] > 10
    assert good(stack.run("execute", "weavegen", "doctor"))
    assert good(stack.run("viewer", "weavegen", "audit"))


def test_no_part_has_a_privilege_that_compose_does_not_give(stack: Stack) -> None:
    for service in OURS:
        status = good(stack.run(service, "cat", "/proc/1/status"))
        assert "\nUid:\t10001\t10001\t10001\t10001\n" in status, service
        assert "\nCapBnd:\t0000000000000000\n" in status, service
        assert "\nNoNewPrivs:\t1\n" in status, service
        assert "\nSeccomp:\t2\n" in status, service
        covered = " /proc/keys " in good(stack.run(service, "cat", "/proc/self/mountinfo"))
        assert covered is not service.startswith("execute"), service


def test_flower_and_the_viewer_answer_on_loopback_alone(stack: Stack) -> None:
    flower, viewer = stack.address("flower"), stack.address("viewer")
    assert flower.startswith("127.0.0.1:")
    assert viewer.startswith("127.0.0.1:")
    with pytest.raises(HTTPError, match="401"):
        page(flower, "/workers")
    assert f"execute@{DEAD}" in page(flower, "/workers", "flower", SECRETS["FLOWER_PASSWORD"])
    assert "weavegen" in page(viewer, "/")


def lose(stack: Stack, signal: str) -> int:
    """End the host in the middle of a job. Returns the job."""
    job = stack.enqueue("execute-2", "-n", "8", "--ticks", "6", "--seed", "5")
    stack.until(lambda: stack.sql(f"{OPEN} {job}")[0]["n"] > 0, f"no trace acts on {DEAD}", seconds=120)
    if signal == "KILL":
        good(podman("kill", stack.container("execute")))
    else:
        stack.compose("stop", "execute")
    return job


def check(stack: Stack, job: int) -> None:
    """Every trace of the job has ended, and nothing is damaged."""
    stack.wait(job)
    assert stack.sql(f"select count(*) as n from traces where job_id = {job}") == [{"n": 8}]
    rebuilt = f"select count(*) as n from events join traces t on t.id = trace_id where job_id = {job}"
    assert stack.sql(f"{rebuilt} and kind = 'environment rebuilt'")[0]["n"] >= 1
    good(stack.run("viewer", "weavegen", "audit"))


def test_the_traces_of_a_killed_host_go_on_when_it_is_started_again(stack: Stack) -> None:
    job = lose(stack, "KILL")
    good(podman("start", stack.container("execute")))
    check(stack, job)


def test_the_traces_of_a_killed_host_go_on_where_another_worker_takes_its_queue(stack: Stack) -> None:
    job = lose(stack, "KILL")
    wanted = f"no worker serves the queue execute.{DEAD}"
    stack.until(lambda: wanted in stack.run("viewer", "weavegen", "doctor").stdout, wanted, seconds=60)
    assert stack.sql(f"{OPEN} {job}")[0]["n"] > 0
    node = f"execute@{DEAD}"
    worker = f"celery -A tasks worker -Q execute.{DEAD} -P threads -c 8 -n {node} -l WARNING -E"
    started = ("--detach", f"--env=WEAVEGEN_HOST={DEAD}", stack.container("execute-2"), *worker.split())
    good(podman("exec", *started))
    try:
        check(stack, job)
    finally:
        stack.run("execute-2", "celery", "-A", "tasks", "control", "shutdown", "--destination", node)
        good(podman("start", stack.container("execute")))
        stack.until_healthy("execute")


def test_the_traces_of_a_host_that_is_told_to_end_go_on_elsewhere_at_once(stack: Stack) -> None:
    job = lose(stack, "TERM")
    assert stack.sql(f"{OPEN} {job}") == [{"n": 0}]
    check(stack, job)
    good(podman("start", stack.container("execute")))
    stack.until_healthy("execute")


def test_another_version_takes_the_place_of_each_part_while_traces_run(stack: Stack) -> None:
    job = stack.enqueue("execute-2", "-n", "16", "--ticks", "8", "--seed", "7")
    stack.until(lambda: stack.sql(f"{OPEN} {job}")[0]["n"] > 0, f"no trace acts on {DEAD}", seconds=120)
    stack.compose("run", "--rm", "--no-deps", "migrate", image=NEXT)
    for service in ("model", "lint", "execute", "execute-2", "beat"):
        stack.replace(service, NEXT)
    stack.wait(job)
    assert stack.sql(f"select count(*) as n from traces where job_id = {job} and status = 'ended'") == [{"n": 16}]
    ticks = f"from ticks join traces t on t.id = trace_id where t.job_id = {job}"
    versions = stack.sql(f"select distinct version {ticks} order by version")
    assert [row["version"] for row in versions] == [__version__, "999.0.0"]
    good(stack.run("viewer", "weavegen", "audit"))
