"""podman, and the parts of deploy/compose.yaml as containers."""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from tests.support import ROOT
from tests.support.waiting import until

ENVIRON = {**os.environ, "CONTAINERS_CONF": str(ROOT / "tests" / "image" / "containers.conf")}
SCRIPT = ROOT / "scripts" / "image.sh"
IMAGE, NEXT = "weavegen:latest", "weavegen:next"
PROJECT = "weavegen-test"
SECRETS = {
    "POSTGRES_PASSWORD": "database0password",
    "REDIS_PASSWORD": "broker0password",
    "VLLM_API_KEY": "model0key",
    "FLOWER_PASSWORD": "flower0password",
}
READER = "reader0password"
"""The password of the role weavegen_reader."""
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
OURS = ("model", "lint", "execute", "execute-2", "beat", "flower", "viewer")
"""The parts that run in weavegen's image until they are told to end."""

Done = subprocess.CompletedProcess[str]


def podman(*arguments: str, timeout: float = 120) -> Done:
    """Run podman. Raises subprocess.TimeoutExpired."""
    return subprocess.run(["podman", *arguments], env=ENVIRON, capture_output=True, text=True, timeout=timeout)


def good(done: Done) -> str:
    """Standard output of a command, which must have succeeded."""
    assert done.returncode == 0, f"{shlex.join(done.args)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def privileges(without: str = "") -> list[str]:
    """What the execute worker gets in deploy/compose.yaml, as options of podman, except an option of security_opt."""
    service = SERVICES["execute"]
    options = [f"--cap-drop={name}" for name in service["cap_drop"]]
    for option in service["security_opt"]:
        name, _, value = option.partition("=")
        if name != without:
            file = ROOT / "deploy" / value
            options.append(f"--security-opt={name}={file}" if name == "seccomp" else f"--security-opt={option}")
    return [*options, f"--pids-limit={service['pids_limit']}"]


def run(*options: str, command: Sequence[str], timeout: float = 120) -> Done:
    """Run a command in a new container without network, whose root is read-only."""
    fixed = ("--rm", "--network=none", "--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp:rw,exec,mode=1777")
    return podman("run", *fixed, *options, IMAGE, *command, timeout=timeout)


class Stack:
    """The services of deploy/compose.yaml with those of tests/image/compose.yaml."""

    def compose(self, *arguments: str, image: str = IMAGE) -> None:
        command = ["bash", str(SCRIPT), "compose", "--project-name", PROJECT, *arguments]
        environ = {**ENVIRON, **SECRETS, "MODEL": "weavegen-nano", "WEAVEGEN_IMAGE": image}
        good(subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300))

    def up(self) -> None:
        """Start all services in the order that deploy/compose.yaml has."""
        servers = ("postgres", "redis", "vllm")
        self.compose("up", "--detach", *servers)
        for service in servers:
            self.until_healthy(service)
        self.compose("up", "--detach", "migrate")
        code = good(podman("wait", self.container("migrate"))).strip()
        assert code == "0", self.state()
        role = f"alter role weavegen_reader login password '{READER}'"
        good(self.run("postgres", "psql", "--username=weavegen", f"--command={role}"))
        self.compose("up", "--detach", *OURS)
        for service in OURS:
            self.until_healthy(service)

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "5")

    def replace(self, service: str, image: str) -> None:
        """Stop the service's container, and start another one of `image`."""
        self.compose("stop", service)
        good(podman("rm", self.container(service)))
        self.compose("up", "--detach", "--no-deps", "--no-recreate", service, image=image)
        self.until_healthy(service)

    def container(self, service: str) -> str:
        return f"{PROJECT}_{service}_1"

    def until_healthy(self, service: str) -> None:
        """Wait until the service's own health check succeeds. podman runs it by itself only where systemd runs."""
        check = ("healthcheck", "run", self.container(service))
        self.until(lambda: podman(*check).returncode == 0, f"{service} is not healthy", seconds=120)

    def run(self, service: str, *command: str, environ: Mapping[str, str] | None = None) -> Done:
        """Run a command in the service's container."""
        variables = [f"--env={name}={value}" for name, value in (environ or {}).items()]
        return podman("exec", *variables, self.container(service), *command)

    def weavegen(self, service: str, *arguments: str) -> Any:
        """The JSON that a command of weavegen prints in the service's container."""
        return json.loads(good(self.run(service, "weavegen", *arguments, "--json")))

    def sql(self, query: str) -> list[dict[str, Any]]:
        url = f"postgresql://weavegen_reader:{READER}@postgres:5432/weavegen"
        # While a container is taken from the network, podman's name server can be away for a moment.
        for _ in range(10):
            done = self.run("viewer", "weavegen", "sql", query, "--json", environ={"WEAVEGEN_READER_URL": url})
            if "failed to resolve host" not in done.stderr:
                break
            time.sleep(1)
        rows: list[dict[str, Any]] = json.loads(good(done))
        return rows

    def enqueue(self, service: str, *options: str) -> int:
        """Enqueue games of tic-tac-toe in a container that can make boxes. Returns the job."""
        file = "/tmp/tictactoe.py"
        good(podman("cp", str(ROOT / "bootstraps" / "tictactoe.py"), f"{self.container(service)}:{file}"))
        return int(self.weavegen(service, "enqueue", file, *options)["job"])

    def wait(self, job: int) -> None:
        """Wait until all traces of the job have ended."""
        query = f"select id, status::text, failure from traces where job_id = {job} and status <> 'ended'"
        self.until(lambda: not self.sql(query), f"job {job} is not over", seconds=900)

    def address(self, service: str) -> str:
        """Where the service's only port is published."""
        [line] = good(podman("port", self.container(service))).splitlines()
        return line.split()[-1]

    def until(self, holds: Callable[[], bool], what: str, *, seconds: float) -> None:
        """Wait until `holds()` is true. Fails with `what` and the containers' state after `seconds`."""
        try:
            until(holds, what, seconds=seconds)
        except AssertionError:
            raise AssertionError(f"{what}\n{self.state()}") from None

    def state(self) -> str:
        """All containers, and the last lines that they printed."""
        listed = podman("ps", "--all", "--filter", f"name={PROJECT}_", "--format", "{{.Names}} {{.Status}}").stdout
        logs = (podman("logs", "--tail", "30", line.split()[0]) for line in listed.splitlines())
        return "\n".join([listed, *(f"{shlex.join(one.args)}\n{one.stdout}{one.stderr}" for one in logs)])
