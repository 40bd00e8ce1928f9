"""Folders that several processes need and one of them creates."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weavegen import config, folders
from weavegen.errors import UsageError

KILLED = """
import os, signal, sys
from pathlib import Path
from weavegen import folders

def make(draft):
    draft.mkdir()
    (draft / "half").write_text("of it")
    os.kill(os.getpid(), signal.SIGKILL)

folders.once(Path(sys.argv[1]), make)
"""


def make(draft: Path) -> None:
    draft.mkdir()
    (draft / "whole").touch()


def test_what_a_killed_process_made_of_a_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "packages"
    command = [sys.executable, "-c", KILLED, str(folder)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    [draft] = (tmp_path / "made").glob(".draft-*")
    assert (draft / "packages" / "half").exists()
    folders.once(tmp_path / "made" / "other", make)
    assert draft.exists()  # it may be another process's, which still works on it
    folders.once(folder, make)
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert not list((tmp_path / "made").glob(".draft-*"))


def test_a_home_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("disk")
    through, direct = (config.load({"WEAVEGEN_HOME": str(tmp_path / name)}) for name in ("link", "disk"))
    folders.prepare(through)
    assert (tmp_path / "disk" / "workspaces").is_dir()
    assert through == direct


def test_a_link_in_place_of_a_folder_for_sockets_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "run").symlink_to("mine")  # another user may have made it in /tmp
    with pytest.raises(UsageError, match="remove it"):
        folders.private(tmp_path / "run")
