"""Full and read-only disks, and a lack of open files: one line and exit code 2, and no trace fails."""

import contextlib
import dataclasses
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import command
from tests.support.worker import enqueue_here, scalar
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.database import Database
from weavegen.engine import execution
from weavegen.engine.worker import Worker
from weavegen.kernel.steps import Execute
from weavegen.services import postgres, schema
from weavegen.services.faults import worker_faults
from weavegen.store import workers


@pytest.fixture(scope="module")
def small_disk() -> Iterator[Path]:
    """A home on a small disk of its own, with a database."""
    if os.getuid() != 0:
        pytest.skip("only root can mount")
    # Below /run, because tests/security/attacks run beside this and watch the host's other mounts.
    with tempfile.TemporaryDirectory(prefix="weavegen-disk-", dir="/run") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160m", "disk", folder], check=True)
        try:
            Path(folder).chmod(0o711)
            home = Path(folder, "home")
            with postgres.running(configuration.load({"WEAVEGEN_HOME": str(home)}), create=True) as url:
                schema.upgrade(url)
            yield home
        finally:
            postgres.stop(configuration.load({"WEAVEGEN_HOME": str(home)}))
            subprocess.run(["mount", "-o", "remount,rw", folder], check=False)
            subprocess.run(["umount", "-l", folder], check=True)


def weavegen(home: Path, *arguments: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command, with the shell's command `before` before it."""
    line = f'{before}exec "$0" "$@"'
    environ = {**os.environ, "WEAVEGEN_HOME": str(home)}
    return subprocess.run(
        ["bash", "-c", line, command.PROGRAM, *arguments], env=environ, capture_output=True, text=True, timeout=120
    )


COMMANDS = (("audit",), ("status",), ("sql", "select count(*) from traces"), ("show", "1"), ("doctor",))


def one_line_and_2(done: "subprocess.CompletedProcess[str]") -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2, done
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert [line.startswith("weavegen: ") for line in lines] == [True], done.stderr


@pytest.mark.parametrize("arguments", COMMANDS[:4], ids=" ".join)
def test_a_full_disk_is_one_line(small_disk: Path, arguments: tuple[str, ...]) -> None:
    file = small_disk.parent / "filler"
    with contextlib.suppress(OSError), file.open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(2**16))
    try:
        done = weavegen(small_disk, *arguments)
    finally:
        file.unlink()
    one_line_and_2(done)
    assert shutil.disk_usage(small_disk).free > 2**20
    assert weavegen(small_disk, "audit").returncode == 0


@pytest.mark.parametrize("arguments", COMMANDS[:4], ids=" ".join)
def test_a_read_only_disk_is_one_line(small_disk: Path, arguments: tuple[str, ...]) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk.parent)], check=True)
    try:
        done = weavegen(small_disk, *arguments)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk.parent)], check=True)
    one_line_and_2(done)


@pytest.mark.parametrize("arguments", COMMANDS[:4], ids=" ".join)
@pytest.mark.parametrize("files", [12])
def test_no_free_descriptor_is_one_line(small_disk: Path, arguments: tuple[str, ...], files: int) -> None:
    done = weavegen(small_disk, *arguments, before=f"ulimit -n {files}; ")
    if done.returncode in (0, 1) and not done.stderr:
        return  # it needed no more
    one_line_and_2(done)


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_output_that_can_not_be_written_is_one_line(small_disk: Path, arguments: tuple[str, ...]) -> None:
    done = weavegen(small_disk, *arguments, before="exec > /dev/full; ")
    one_line_and_2(done)


@pytest.mark.parametrize("disk", ["full", "read-only"])
def test_a_host_whose_disk_takes_nothing_fails_no_trace(
    db: Database, config: Config, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can mount")
    enqueue_here(db, monkeypatch)
    with db.begin() as conn:
        workers.report(conn, "here:1", "execute@here", ["execute"], {})
    with tempfile.TemporaryDirectory(prefix="weavegen-disk-", dir="/run") as folder:
        size = "size=1m,nr_inodes=20" if disk == "full" else "size=1m"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "disk", folder], check=True)
        try:
            small = dataclasses.replace(config, home=Path(folder), host="here")
            small.runtime.mkdir(parents=True, exist_ok=True)
            if disk == "full":
                with contextlib.suppress(OSError):
                    for number in range(20):
                        Path(folder, f"filler{number}").touch()
            else:
                subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
            worker = Worker(small, lambda *_: None, {Execute: execution.execute})
            [message] = worker.engine.start_queued()
            outcome = worker.run(message.step_id)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
    assert (outcome.status, scalar(db, "select status from traces")) == ("again", "running")
    assert scalar(db, "select claims from steps") == 0, "Does it count as an attempt?"
    with db.begin() as conn:
        [fault] = worker_faults(conn)
    assert fault.what.startswith("steps can't be done on here: ")
    assert ("No space left on device" if disk == "full" else "Read-only file system") in fault.what
