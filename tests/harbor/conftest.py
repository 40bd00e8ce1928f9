"""A base image for the tests of Harbor tasks: Debian with Python and pytest, made once."""

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harbor.world import BASE, World
from tests.support import ROOT
from weavegen.sandbox import images

PLACE = ROOT / ".venv-harbor"
"""Kept between runs; `make clean` removes it."""


@pytest.fixture(scope="session")
def base() -> Path:
    """The root file system as a tar archive."""
    archive = PLACE / "base.tar"
    PLACE.mkdir(exist_ok=True)
    with (PLACE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest-xdist runs this fixture in several processes
        if not archive.exists():
            command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-pytest", "bookworm"]
            subprocess.run([*command, PLACE / "new.tar"], check=True, timeout=280)
            (PLACE / "new.tar").rename(archive)
    return archive


@pytest.fixture(scope="session")
def world(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A home with the base image."""
    home = tmp_path_factory.mktemp("home")
    os.chmod(home, 0o711)
    found = World(home)
    images.add_base(found.config, BASE, base)
    yield found
    found.end()
