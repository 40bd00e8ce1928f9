"""A whole installation, as a user has it: real services and workers, the command line, the simulated model."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support import ROOT, command
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.services import fleet
from weavegen.store import urls
from weavegen.store.session import make_engine


class Installation:
    """One WEAVEGEN_HOME and the processes that run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        # The lease is short, so that the sweeper soon restarts the steps of a killed worker.
        self.environ = {**kept, "WEAVEGEN_HOME": str(home), "WEAVEGEN_LEASE": "2", "HOME": "/nonexistent"}
        self.environ["PYTHONPATH"] = str(ROOT)
        self.environ |= {"WEAVEGEN_MODEL": "sim"}  # equal seeds give equal texts, with errors at known rates
        self.environ |= {"WEAVEGEN_FLOWER": "0", "WEAVEGEN_VIEWER": "0"}  # each would make `up` two seconds slower

    @property
    def config(self) -> Config:
        return configuration.load(self.environ)

    def cli(
        self, *arguments: str | Path, timeout: float = 240, **environ: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in a process of its own, in a folder other than the project's."""
        return command.run(list(map(str, arguments)), self.environ | environ, self.home, timeout)

    def json(self, *arguments: str | Path, **environ: str) -> Any:
        """The JSON that a command prints. The command must succeed."""
        done = self.cli(*arguments, "--json", **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def sql(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        engine = make_engine(urls.database_url(self.config))
        try:
            with engine.connect() as conn:
                return [tuple(row) for row in conn.execute(sa.text(query), parameters)]
        finally:
            engine.dispose()

    def until(self, query: str, **parameters: Any) -> None:
        """Wait until the query returns true."""
        engine = make_engine(urls.database_url(self.config), isolation_level="AUTOCOMMIT")
        deadline = time.monotonic() + 60
        with engine.connect() as conn:
            while not conn.execute(sa.text(query), parameters).scalar_one():
                assert time.monotonic() < deadline, f"{query}: {self.logs()}"
                time.sleep(0.05)
        engine.dispose()

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
            "select id, status, blocks from traces where job_id = :job and status in ('queued', 'running')",
            job=job,
        ):
            assert time.monotonic() < deadline, f"still open: {rows}; {self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in self.config.logs.glob("*.log"))

    def worker(
        self, name: str, queues: str, pool: str = "threads", concurrency: int = 1
    ) -> "subprocess.Popen[bytes]":
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
def installed(**environ: str) -> Iterator[Installation]:
    """Start an installation with these environment variables; stop it at the end."""
    home = Path(tempfile.mkdtemp(prefix="weavegen-accept-"))
    installation = Installation(home)
    installation.environ |= environ
    try:
        done = installation.cli("up")
        assert done.returncode == 0, done.stderr
        yield installation
    finally:
        fleet.down(installation.config)
        shutil.rmtree(home, ignore_errors=True)
