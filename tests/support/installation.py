"""A whole installation, as a user has it: real services and workers, the command line, the simulated model."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from redis import Redis

from tests.support import ROOT, command
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.database import Statement
from weavegen.services import fleet, redis
from weavegen.services.processes import registered
from weavegen.store import urls
from weavegen.store.session import pooled

STATE = (
    "select * from steps where status in ('ready', 'running') order by id limit 100",
    "select pid, state, wait_event_type, wait_event, now() - xact_start, left(query, 200) from pg_stat_activity "
    "where datname = current_database()",
)
"""Queries for `Installation.state`."""


class Installation:
    """One WEAVEGEN_HOME and the processes that run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        # The lease is short, so that the sweeper soon restarts the steps of a killed worker.
        self.environ = {**kept, "WEAVEGEN_HOME": str(home), "WEAVEGEN_LEASE": "2", "HOME": str(home / "user")}
        self.environ["PYTHONPATH"] = str(ROOT)
        self.environ |= {"WEAVEGEN_MODEL": "sim"}  # equal seeds give equal texts, with errors at known rates
        self.environ |= {"WEAVEGEN_FLOWER": "0", "WEAVEGEN_VIEWER": "0"}  # each would make `up` two seconds slower

    @property
    def config(self) -> Config:
        return configuration.load(self.environ)

    def cli(self, *arguments: str | Path, timeout: float = 240, **environ: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in a process of its own, in a folder other than the project's."""
        given = list(map(str, arguments))
        try:
            return command.run(given, self.environ | environ, self.home, timeout)
        except subprocess.TimeoutExpired:
            message = f"`weavegen {' '.join(given)}` has not ended within {timeout:g} s"
            raise AssertionError(f"{message}\n{self.state()}") from None

    def json(self, *arguments: str | Path, **environ: str) -> Any:
        """The JSON that a command prints. The command must succeed."""
        done = self.cli(*arguments, "--json", **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sql(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        db = pooled(urls.database_url(self.config))
        try:
            with db.connect() as conn:
                return [tuple(row) for row in conn.execute(Statement(query), parameters)]
        finally:
            db.close()

    def until(self, query: str, **parameters: Any) -> None:
        """Wait until the query returns true."""
        db = pooled(urls.database_url(self.config), autocommit=True)
        deadline = time.monotonic() + 60
        with db.connect() as conn:
            while not conn.execute(Statement(query), parameters).scalar_one():
                assert time.monotonic() < deadline, f"{query}\n{self.state()}"
                time.sleep(0.05)
        db.close()

    def bodies(self, job: int) -> list[tuple[Any, ...]]:
        """All blocks of a job without their times. They are equal for equal seeds."""
        return self.sql(
            """
            select t.number, b.index, b.type, b.body, b.title, b.compiles, b.ran,
              b.question, b.answer, b.probability
            from blocks b join traces t on t.id = b.trace_id where t.job_id = :job order by 1, 2
            """,
            job=job,
        )

    def wait(self, job: int, seconds: float = 180) -> None:
        """Wait until all of a job's traces have ended."""
        deadline = time.monotonic() + seconds
        while rows := self.sql(
            "select id, status, blocks from traces where job_id = :job and status in ('queued', 'running')", job=job
        ):
            assert time.monotonic() < deadline, f"still open: {rows}\n{self.state()}"
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.config.logs.glob("*.log"))

    def state(self) -> str:
        """What the installation does now, for the message of a test that has waited too long.

        It lists open steps, connections to the database, messages in the broker, the threads of the workers, logs.
        """
        services = registered(self.config).values()
        told = [f"{service.name}: process {service.pid}" for service in services if psutil.pid_exists(service.pid)]
        for query in STATE:
            told += [" | ".join(map(str, row)) for row in self.sql(query)]
        with Redis(
            unix_socket_path=str(redis.socket(self.config)), password=redis.password(self.config), decode_responses=True
        ) as broker:
            told += [f"{broker.llen(name)} messages in {name!r}" for name in broker.scan_iter(_type="LIST")]
            told.append(f"{broker.hlen('unacked')} messages without acknowledgement")
        for service in services:
            if service.name in fleet.WORKERS:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(service.pid, signal.SIGUSR1)  # Celery prints the stacks of all threads into the log
        time.sleep(2)
        logs = [f"{path.name}: {path.read_text()[-20_000:]}" for path in self.config.logs.glob("*.log")]
        return "\n".join([*told, *logs])

    def worker(self, name: str, queues: str, pool: str = "threads", concurrency: int = 1) -> "subprocess.Popen[bytes]":
        """Start a worker by hand, as a Celery user does."""
        options = ["-A", "tasks", "worker", "-Q", queues, "-P", pool, "-c", str(concurrency), "-n", f"{name}@test"]
        log = self.config.logs / f"{name}.log"
        with log.open("ab") as out:
            return subprocess.Popen(
                [Path(sys.executable).parent / "celery", *options, "-l", "WARNING"],
                env=self.environ,
                cwd=ROOT,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Send SIGKILL. The worker's environments outlive it, by design."""
    process.kill()
    process.wait()


@contextlib.contextmanager
def installed(*options: str | Path, timeout: float = 240, **environ: str | None) -> Iterator[Installation]:
    """Start an installation with these options of `up` and environment variables (None: unset); stop it at the end."""
    home = Path(tempfile.mkdtemp(prefix="weavegen-accept-"))
    installation = Installation(home)
    changed = installation.environ | environ
    installation.environ = {name: value for name, value in changed.items() if value is not None}
    try:
        done = installation.cli("up", *options, timeout=timeout)
        assert done.returncode == 0, done.stderr
        yield installation
    finally:
        fleet.down(installation.config)
        shutil.rmtree(home, ignore_errors=True)
