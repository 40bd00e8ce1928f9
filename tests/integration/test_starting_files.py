"""Files with which /app begins, and modules beside a bootstrap file."""

from pathlib import Path

import pytest

from weavegen import config as configuration
from weavegen.config import Config
from weavegen.engine import enqueueing, job_files
from weavegen.errors import UsageError
from weavegen.sandbox import starting_files
from weavegen.sandbox.environment import dry_run

READS = """
from bootstraps.helper import shout
from bootstraps.params import read_params
import tools.editor

def act(self):
    with open("notes/todo.txt", "a") as file:
        file.write("more")
    return [shout(), sorted(os.listdir("/app")), open("notes/todo.txt").read(), bool(read_params)]

self.add_action("Act", act)
"""


@pytest.fixture
def own(tmp_path: Path) -> Config:
    return configuration.load({"WEAVEGEN_HOME": str(tmp_path / "home")})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files, and beside it a folder of bootstrap files."""
    files, bootstraps = tmp_path / "files", tmp_path / "bootstraps"
    (files / "notes").mkdir(parents=True)
    (files / "notes" / "todo.txt").write_text("work, ")
    (files / ".hidden").write_text("")
    (files / "out").symlink_to("/etc/passwd")
    bootstraps.mkdir()
    (bootstraps / "mine.py").write_text(READS)
    (bootstraps / "helper.py").write_text("from bootstraps import words\n\ndef shout():\n    return words.WORD\n")
    (bootstraps / "words.py").write_text("WORD = 'hey'\n")
    (bootstraps / "unused.py").write_text("")
    return tmp_path


def test_a_box_begins_with_the_files_and_finds_the_modules_beside_the_file(own: Config, folder: Path) -> None:
    [order] = enqueueing.orders([folder / "bootstraps" / "mine.py"])
    assert sorted(order.files) == ["bootstraps/helper.py", "bootstraps/words.py"]
    archive = enqueueing.pack_files([order], folder / "files")
    assert archive is not None
    [done] = dry_run(own, order.source, files=enqueueing.files_here(own, archive))
    assert done.error is None, done.error
    assert done.value == ["hey", ["bootstraps", "notes", "tools"], "work, more", True]


def test_equal_files_are_one_archive_that_is_unpacked_once(own: Config, folder: Path) -> None:
    files = job_files.read_files(folder / "files")
    assert files == {"notes/todo.txt": b"work, "}
    archive = starting_files.pack(files)
    assert archive == starting_files.pack(dict(reversed(files.items())))
    digest = starting_files.sha256(archive)
    place = starting_files.unpacked(own, digest, lambda: archive)
    assert starting_files.unpacked(own, digest, lambda: pytest.fail("it was loaded again")) == place


def test_the_projects_own_bootstrap_files_need_nothing(own: Config) -> None:
    [order] = enqueueing.orders([enqueueing.BOOTSTRAPS / "tictactoe.py"])
    assert order.files == {}
    assert enqueueing.pack_files([order]) is None


def test_files_that_can_not_be_used(folder: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        job_files.read_files(folder / "missing")
    (folder / "files" / "two\nlines").touch()
    with pytest.raises(UsageError, match="can't be the name of a file"):
        job_files.read_files(folder / "files")
    with pytest.raises(UsageError, match="two files of the job would be /app/a"):
        job_files.merged([{"a": b"1"}, {"a": b"2"}])


def test_names_of_weave_agent_need_no_import(own: Config) -> None:
    body = (
        "return [requests.__name__, hashlib.sha256(b'').hexdigest()[:4], deepcopy([1]), pformat({}), str(Optional), "
        "Tree.__name__, check_schema.__name__, Enum.__name__]"
    )
    [done] = dry_run(own, f"def act(self):\n    {body}\n\nself.add_action('Act', act)\n")
    assert done.error is not None
    assert done.error.type == "NameError"  # without packages, the block must know that requests is missing
    body = body.replace("requests.__name__", "1")
    [done] = dry_run(own, f"def act(self):\n    {body}\n\nself.add_action('Act', act)\n")
    assert done.value == [1, "e3b0", [1], "{}", "typing.Optional", "Tree", "check_schema", "Enum"]
