"""What the Python code in a box can import: the default packages, a requirements file, a user's folder."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.wheels import wheel
from weavegen import config as configuration
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.engine import enqueueing
from weavegen.errors import UsageError
from weavegen.kernel.packages import Packages
from weavegen.sandbox import packages
from weavegen.sandbox.environment import dry_run
from weavegen.store import jobs
from weavegen.store.jobs import Order

HELLO = "def hello():\n    print('hello from', __file__)\n"


@pytest.fixture
def own(tmp_path: Path) -> Config:
    return configuration.load({"WEAVEGEN_HOME": str(tmp_path / "home")})


def action(body: str) -> str:
    """A bootstrap file whose action returns what `body` returns."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return f"def act(self):\n{lines}\n\nself.add_action('Act', act)\n"


def value(own: Config, body: str, folder: Path | None) -> object:
    [done] = dry_run(own, action(body), packages=folder)
    assert done.error is None, done.error
    return done.value


@pytest.fixture
def one(tmp_path: Path) -> Path:
    """A requirements file with one package."""
    file = tmp_path / "requirements.txt"
    file.write_text(f"{wheel(tmp_path, 'one', '1.5', HELLO)}\n")
    return file


def test_the_default_packages_can_be_imported(own: Config) -> None:
    chosen = packages.usual(own)
    assert chosen is not None
    assert {"requests", "beautifulsoup4", "lxml", "numpy", "jsonschema", "pyyaml"} <= chosen.versions.keys()
    body = """
import bs4, django, jsonschema, libtmux, lxml.html, numpy, pytest, requests, yaml
assert libtmux.__file__ and numpy.arange(4).sum() == 6
jsonschema.validate([1], {"type": "array", "items": {"type": "integer"}})
return bs4.BeautifulSoup("<p>Hello</p>", "lxml").p.text
"""
    assert value(own, body, packages.on_this_host(own, chosen)) == "Hello"


def test_programs_of_a_block_find_python_and_the_packages(own: Config, one: Path) -> None:
    chosen = packages.from_file(own, one)
    body = """
import subprocess
run = lambda text: subprocess.run(text, shell=True, capture_output=True, text=True, check=True).stdout
assert run("python -c 'import sys; print(sys.prefix)'").strip() == __import__("sys").prefix
return [run("one-hello"), run("python3 -c 'import one; one.hello()'")]
"""
    said = value(own, body, packages.on_this_host(own, chosen))
    assert said == ["hello from /opt/packages/one.py\n"] * 2


def test_blocks_can_not_change_packages(own: Config, one: Path) -> None:
    folder = packages.on_this_host(own, packages.from_file(own, one))
    body = """
import one, os
try:
    open(one.__file__, "a")
except OSError as error:
    return error.strerror
"""
    assert value(own, body, folder) in ("Read-only file system", "Permission denied")


def test_the_runner_does_not_import_packages(own: Config, tmp_path: Path) -> None:
    """A package with the name of a module of the standard library changes nothing."""
    file = tmp_path / "requirements.txt"
    file.write_text(f"{wheel(tmp_path, 'json', '1.0', 'raise SystemExit(1)')}\n")
    folder = packages.on_this_host(own, packages.from_file(own, file))
    assert value(own, "import json\nreturn json.dumps([1])", folder) == "[1]"


def test_a_file_is_installed_once(own: Config, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = packages.from_file(own, one)
    assert chosen.versions == {"one": "1.5"}
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: pytest.fail("pip was run again"))
    assert packages.from_file(own, one) == chosen
    assert packages.on_this_host(own, chosen) is not None


def test_another_host_with_other_versions_refuses(own: Config, one: Path, tmp_path: Path) -> None:
    chosen = packages.from_file(own, one)
    later = Packages(requirements=chosen.requirements, versions={"one": "1.6"})
    with pytest.raises(UsageError, match=r"pip can't install|one 1.5 instead of 1.6"):
        packages.on_this_host(own, later)


def test_a_folder_of_the_user(own: Config, one: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    command = [sys.executable, "-m", "pip", "-q", "install", "--target", str(target), "-r", str(one)]
    subprocess.run(command, check=True, capture_output=True)
    chosen = packages.from_folder(target)
    assert (chosen.versions, chosen.folder) == ({"one": "1.5"}, str(target))
    assert value(own, "import one\nreturn one.__file__", packages.on_this_host(own, chosen)) == ("/opt/packages/one.py")
    changed = Packages(versions={"one": "1.4"}, folder=str(target))
    with pytest.raises(UsageError, match=r"has changed since the job was enqueued: one 1\.5 instead of 1.4"):
        packages.on_this_host(own, changed)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("/nowhere/at/all.whl\n", "pip can't install the packages: "),
        ("not a requirement!!\n", "pip can't install the packages: "),
        ("\x00", "is not a requirements file"),
    ],
)
def test_files_that_can_not_be_installed(own: Config, tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text(text)
    with pytest.raises(UsageError, match=error) as raised:
        packages.from_file(own, file)
    assert "\n" not in str(raised.value)


def test_folders_that_can_not_be_used(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        packages.from_folder(tmp_path / "missing")
    (tmp_path / "pyvenv.cfg").touch()
    with pytest.raises(UsageError, match="was not made with Python"):
        packages.from_folder(tmp_path)
    with pytest.raises(UsageError, match="not both"):
        enqueueing.choose_packages(configuration.load({}), "a", "b")


def test_a_folder_of_metadata_without_metadata_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "left-1.0.dist-info").mkdir()  # as pip leaves it if it is killed
    assert packages.from_folder(tmp_path).versions == {}


def test_jobs_with_the_same_packages_share_a_record(db: Database) -> None:
    chosen = Packages(requirements="one\n", versions={"one": "1.5"})
    options: dict[str, Any] = {"agent": "weave", "model": None, "seed": 1, "settings": {}, "version": "0"}
    query = "select j.id, p.requirements, p.versions from jobs j join packages p on p.id = j.packages_id order by 1"
    with db.begin() as conn:
        first, second = (
            jobs.enqueue(conn, [Order("a.py", "pass")], name="test", packages=chosen, **options) for _ in range(2)
        )
        recorded = conn.execute(Statement(query)).all()
    assert recorded == [(first, "one\n", {"one": "1.5"}), (second, "one\n", {"one": "1.5"})]
