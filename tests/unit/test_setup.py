"""scripts/setup.sh where everything is installed already, and the Makefile's use of the environment that it makes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

READ = ("requirements.lock", "pyproject.toml", "scripts/setup.sh", "weavegen/sandbox/packages.lock")
"""Files that the fingerprint of an environment is made of, in this order."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree whose environment in the folder `made` is complete."""
    for name in READ:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("weavegen/box", "bootstraps", "made/bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "made/bin/python").symlink_to(sys.executable)
    done = subprocess.run(["sha256sum"], input=b"".join((ROOT / name).read_bytes() for name in READ), stdout=-1)
    (tmp_path / "made/.stamp").write_bytes(done.stdout)
    (tmp_path / "made/.place").write_text(f"{tmp_path}\n")
    return tmp_path


def setup(tree: Path, **environ: str) -> str:
    """What setup says to an environment that is complete."""
    environ = {"PATH": os.environ["PATH"], "VENV": "made", "WEAVEGEN_SANDBOX": "none"} | environ
    done = subprocess.run(["bash", tree / "scripts/setup.sh"], env=environ, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_another_interpreter_is_not_ignored_silently(tree: Path) -> None:
    assert setup(tree) == setup(tree, PYTHON=sys.executable) == ""
    (tree / "other").write_text("#!/bin/sh\necho /opt/python 3.15\n")
    (tree / "other").chmod(0o755)
    assert f"remove it to use PYTHON={tree}/other" in setup(tree, PYTHON=str(tree / "other"))


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_each_version_of_python_is_found(tree: Path, version: str) -> None:
    """By setup.sh, and by test_venv.sh for the environments of other tests."""
    for name in ("3", "3.11", "3.12", "3.13", "3.14"):
        usable = f'[ "$*" != "-m venv --clear new" ] || exit 9; exec {sys.executable} "$@"'
        (tree / f"python{name}").write_text(f"#!/bin/sh\n{usable if name == version else 'exit 1'}\n")
        (tree / f"python{name}").chmod(0o755)
    environ = {"PATH": f"{tree}:{os.environ['PATH']}", "VENV": "new", "WEAVEGEN_SANDBOX": "none", "HOME": str(tree)}

    def printed(*command: str) -> tuple[int, str]:
        done = subprocess.run(command, env=environ, stdout=-1, text=True, timeout=60)
        return done.returncode, done.stdout.strip()

    python = f"Python {'.'.join(map(str, sys.version_info[:3]))}"
    assert printed("bash", f"{tree}/scripts/setup.sh") == (9, f"setup: making new with {python}")
    assert printed("bash", "-c", f"name=x; . {ROOT}/scripts/test_venv.sh; find_python") == (0, f"python{version}")


@pytest.mark.skipif(os.getuid() != 0, reason="only root's boxes have users of their own")
def test_boxes_can_read_what_was_cloned_with_a_strict_umask(tree: Path) -> None:
    for name in ("weavegen/box", "bootstraps"):
        (tree / name / "main.py").touch(0o600)
        (tree / name).chmod(0o700)
    assert setup(tree) == ""
    for name in ("weavegen/box", "bootstraps"):
        assert [(tree / name / part).stat().st_mode & 0o777 for part in (".", "main.py")] == [0o755, 0o644]


def test_every_target_uses_the_environment_that_setup_makes() -> None:
    given = {"PATH": os.environ["PATH"], "VENV": "made"}
    for target in ("test", "check", "house", "settings"):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, env=given, capture_output=True, text=True, check=True)
        assert "made/bin/" in done.stdout
        assert ".venv" not in done.stdout
