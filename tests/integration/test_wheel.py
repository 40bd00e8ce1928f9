"""The wheel contains what a user of an installation needs, and nothing that only the source tree needs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT

ONLY_FOR_DEVELOPERS = {"migrations/script.py.mako"}
TOP_LEVEL = {"weavegen", "weavegen_nano", "tasks", "bootstraps", "migrations"}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Paths in a wheel built from the files that git tracks."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", folder, source], check=True)
    [wheel] = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_wheel_has_no_simulation_no_attacks_and_no_tests(names: set[str]) -> None:
    folders = {Path(name).parts[0] for name in names if ".dist-info" not in name}
    assert folders == TOP_LEVEL
    assert not [name for name in names if {"attacks", "simulation", "tests", "pretraining"} & set(Path(name).parts)]


def test_the_wheel_has_all_data_files_of_the_packages(names: set[str]) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *TOP_LEVEL], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert set(filter(None, tracked.stdout.split("\0"))) - names == ONLY_FOR_DEVELOPERS
