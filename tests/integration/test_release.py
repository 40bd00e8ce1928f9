"""scripts/release.sh refuses what must not become a release, in one line, before it builds anything."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT
from weavegen.version import __version__

Change = Callable[[Path], object]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository whose only commit has what the script reads before it builds."""
    for name in ("scripts/release.sh", "weavegen/version.py", "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=tester", "-c", "user.email=tester@localhost")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "Change")


def other_version(folder: Path) -> None:
    (folder / "weavegen" / "version.py").write_text('__version__ = "9.9.9"\n')
    commit(folder)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda folder: (folder / "new.py").write_text(""), "uncommitted changes"),
        (lambda folder: git(folder, "tag", f"v{__version__}"), f"the tag v{__version__} exists"),
        (other_version, 'CHANGELOG.md has no heading "## 9.9.9"'),
    ],
)
def test_what_is_no_release_is_refused(clone: Path, change: Change, line: str) -> None:
    change(clone)
    done = subprocess.run(["bash", "scripts/release.sh"], cwd=clone, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"release: {line}")
    assert len(done.stderr.splitlines()) == 1
    assert not (clone / "dist").exists()
