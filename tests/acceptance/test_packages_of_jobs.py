"""The options `--packages` and `--environment` of a job: what its code imports, and what is recorded."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.installation import Installation
from tests.support.wheels import wheel

FILE = """
def action_import(self):
    import one
    return one.NUMBER

self.add_action("Import", action_import)
"""


@pytest.fixture(scope="module")
def folder(installation: Installation) -> Path:
    """A bootstrap file that imports the package `one`, a requirements file that names it, and a folder that has it."""
    folder = installation.home / "imports"
    folder.mkdir()
    (folder / "imports.py").write_text(FILE)
    (folder / "requirements.txt").write_text(f"{wheel(folder, 'one', '1.5', 'NUMBER = 5')}\n")
    command = [sys.executable, "-m", "pip", "-q", "install", "--target", str(folder / "mine")]
    subprocess.run([*command, "-r", str(folder / "requirements.txt")], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("option", "name"), [("--packages", "requirements.txt"), ("--environment", "mine")])
def test_a_job_imports_what_the_option_names(installation: Installation, folder: Path, option: str, name: str) -> None:
    given = (folder / "imports.py", option, folder / name)
    assert installation.cli("check", *given).returncode == 0
    [row] = installation.json("run", *given, "--ticks", "1")
    assert row["status"] == "ended", row
    query = "select p.versions from traces t join jobs j on j.id = t.job_id join packages p on p.id = j.packages_id"
    assert installation.sql(f"{query} where t.id = :trace", trace=row["id"]) == [({"one": "1.5"},)]
    table = "select body from blocks where trace_id = :trace and type = 'outcome' order by index limit 1"
    [[outcome]] = installation.sql(table, trace=row["id"])
    assert "action | Import | 5" in outcome


def test_what_a_job_can_not_import_is_said_at_once(installation: Installation, folder: Path) -> None:
    file = folder / "imports.py"
    without = installation.cli("enqueue", file)
    assert (without.returncode, "No module named 'one'" in without.stderr) == (2, True)
    both = installation.cli("enqueue", file, "--packages", folder / "requirements.txt", "--environment", folder)
    assert (both.returncode, "give --packages or --environment, not both" in both.stderr) == (2, True)
