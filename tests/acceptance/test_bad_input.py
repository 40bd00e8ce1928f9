"""Bad input gives one line that says what to do and exit code 2, and leaves nothing half-written."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import TICTACTOE
from tests.support.command import PROGRAM
from tests.support.installation import Installation
from weavegen.services import schema

NOWHERE = "postgresql://nobody:secret@127.0.0.1:1/none"

FILES = {
    "no file": (None, "does not exist"),
    "does not compile": ("def f(:\n", "does not compile"),
    "raises": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "defines no action": ("x = 1\n", "no action"),
    "control characters": ("x = '\x00'\n", "control characters"),
    "not text": (b"\xff\xfe\x00", "UTF-8"),
}
ROWS = {
    "unknown key": ('{"bootstrap": "good.py", "speed": 3}', "speed"),
    "no JSON": ("bootstrap: good.py", "line 1"),
    "missing key": ('{"n": 3}', "bootstrap"),
    "wrong type": ('{"bootstrap": "good.py", "n": "three"}', "line 1"),
    "no such file": ('{"bootstrap": "other.py"}', "other.py"),
    "empty": ("\n", "no rows"),
    "n below 1": ('{"bootstrap": "good.py", "n": 0}', "n is 0"),
}
OPTIONS = {
    "unknown setting": (["--set", "roundz=3"], "roundz"),
    "setting out of range": (["--set", "window=3"], "window"),
    "no size": (["--until", "lots"], "--until lots"),
    "no pair": (["-p", "opponent"], "KEY=VALUE"),
    "a misspelt parameter": (["-p", "oponent=basic"], "oponent"),
    "a misspelt setting": (["--set", "temprature=1"], "did you mean temperature?"),
    "n below 1": (["-n", "0"], "n is 0"),
    "unknown option": (["--tickz", "3"], "--tickz"),
    "unknown model": (["--model", "gpt-9"], "gpt-9"),
    "ticks below 0": (["--ticks", "-1"], "ticks"),
    "no number": (["-n", "many"], "integer"),
}


def refused(installation: Installation, complaint: str, *arguments: str | Path, **environ: str) -> None:
    before = installation.sql("select count(*) from jobs, traces, bootstraps")
    done = installation.cli(*arguments, **environ)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert done.stdout == ""
    assert "secret" not in done.stderr
    assert installation.sql("select count(*) from jobs, traces, bootstraps") == before


@pytest.fixture(scope="module")
def installation(own_installation: Installation) -> Installation:
    return own_installation


@pytest.fixture
def good(installation: Installation) -> Path:
    path = installation.home / "good.py"
    path.write_text(TICTACTOE.read_text())
    return path


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("command", ["run", "enqueue"])
def test_bootstrap_files(installation: Installation, case: str, command: str) -> None:
    content, complaint = FILES[case]
    path = installation.home / "bad.py"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    refused(installation, complaint, command, path)


@pytest.mark.parametrize("case", ROWS)
def test_job_rows(installation: Installation, good: Path, case: str) -> None:
    content, complaint = ROWS[case]
    rows = installation.home / "rows.jsonl"
    rows.write_text(content)
    refused(installation, complaint, "enqueue", "--from", rows)


@pytest.mark.parametrize("case", OPTIONS)
def test_options(installation: Installation, good: Path, case: str) -> None:
    options, complaint = OPTIONS[case]
    refused(installation, complaint, "enqueue", good, *options)


def test_nothing_to_enqueue(installation: Installation) -> None:
    refused(installation, "give bootstrap files", "enqueue")


def test_unknown_numbers(installation: Installation) -> None:
    refused(installation, "no job 999", "status", "999")
    refused(installation, "no trace 999999", "show", "999999")
    refused(installation, "no job 999", "cancel", "999")
    refused(installation, "a number is too large", "status", "99999999999999999999")
    refused(installation, "the query failed", "sql", "select nonsense")
    refused(installation, "rename one with AS", "sql", "--json", "select 1 as id, 2 as id")
    refused(installation, "give --job, --where or both", "retry", "--where", "")
    refused(installation, "can't be a file", "backup", installation.home)


def test_options_that_would_be_ignored(installation: Installation, good: Path) -> None:
    rows = installation.home / "rows.jsonl"
    rows.write_text('{"bootstrap": "good.py"}')
    for options in (
        ["--from", rows, "-n", "3"],
        ["--from", rows, "-p", "opponent=basic"],
        ["--task", "Count.", "-p", "a=1"],
    ):
        refused(installation, "leave it out", "enqueue", *options)


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("DATABASE_URL", NOWHERE, "DATABASE_URL"),
        ("DATABASE_URL", "mysql://localhost/x", "PostgreSQL"),
        ("CELERY_BROKER_URL", "redis://:secret@127.0.0.1:1/0", "CELERY_BROKER_URL"),
        ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1", "OPENAI_BASE_URL"),
        ("WEAVEGEN_MAX_ACTIVE", "many", "WEAVEGEN_MAX_ACTIVE"),
    ],
)
def test_services_out_of_reach(
    installation: Installation, good: Path, variable: str, value: str, complaint: str
) -> None:
    refused(installation, complaint, "enqueue", good, **{variable: value})


def test_a_port_in_use(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(installation, port, "sim", "--port", port)
        other = installation.home / "other"
        done = installation.cli("up", "--model-port", port, WEAVEGEN_HOME=str(other))
        assert done.returncode == 2
        assert port in done.stderr
        installation.cli("down", WEAVEGEN_HOME=str(other))


def test_another_schema_version(installation: Installation, good: Path) -> None:
    def to(version: str) -> None:
        assert installation.cli("down").returncode == 0
        from weavegen.services import postgres
        from weavegen.store.session import pooled

        with postgres.running(installation.config) as url:
            db = pooled(url)
            with db.begin() as conn:
                conn.execute(f"update alembic_version set version_num = '{version}'")
            db.close()

    to("9999")
    done = installation.cli("status")
    assert (done.returncode, done.stdout) == (2, "")
    assert "schema version 9999" in done.stderr
    done = installation.cli("up")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    to(str(schema.newest()))
    assert installation.cli("up").returncode == 0


def test_no_worker_runs(installation: Installation, good: Path) -> None:
    assert installation.cli("down").returncode == 0
    done = installation.cli("run", good)
    assert done.returncode == 2
    assert "weavegen up" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_ctrl_c_while_a_command_is_still_imported() -> None:
    environ = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}
    process = subprocess.Popen([PROGRAM, "--version"], env=environ, stdout=-1, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    imported = (line.split("|")[-1].strip() for line in process.stderr)
    assert "weavegen.errors" in imported  # stops reading here, in the middle of the imports
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, "Traceback" in err) == (130, "", False)


LATE = """
import os, signal, sys
class Late:
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):
        kill(process, number)
sys.modules["late"] = Late()  # deleted when Python ends
sys.argv = ["weavegen", "--version"]
from weavegen.cli import main
main()
"""


def test_ctrl_c_when_a_command_is_over() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
