"""The disk of boxes with an image: what the watch counts, and what is removed, whatever an agent has left there."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from weavegen.harbor.verifier import LIMITS
from weavegen.sandbox import image_root
from weavegen.sandbox.providers import Handle
from weavegen.sandbox.watch import BoxState, Process, Watch, disk_usage

DEEP = "import os\nfor _ in range({}): os.mkdir('d'); os.chdir('d')\nopen('file', 'w').write('x' * 100_000)"


def nest(folder: Path, levels: int) -> None:
    """Make nested folders, with a file in the innermost."""
    folder.mkdir()
    subprocess.run([sys.executable, "-c", DEEP.format(levels)], cwd=folder, check=True)


def test_deep_folders(tmp_path: Path) -> None:
    nest(tmp_path / "deep", 1_200)
    used, entries = disk_usage(str(tmp_path / "deep"), LIMITS)
    assert used >= 100_000
    assert entries == 1_201
    image_root.remove(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_folders_that_are_too_deep_to_look_into(tmp_path: Path) -> None:
    """Their contents can't be counted, so a box may not have them."""
    nest(tmp_path / "deep", 3_000)
    used, _ = disk_usage(str(tmp_path / "deep"), LIMITS)
    assert used > LIMITS.disk
    image_root.remove(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_a_file_with_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    for number in range(9):
        (tmp_path / str(number)).hardlink_to(tmp_path / "file")
    used, entries = disk_usage(str(tmp_path), LIMITS)
    assert 90_000 < used < 200_000
    assert entries == 10


def test_files_are_limited(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).touch()
    state = BoxState(Handle(1, 1.0, ()), replace(LIMITS, inodes=10), str(tmp_path))
    found = Watch(tmp_path).exceeded_limit(tmp_path / "env-1.json", state, [])
    assert found is not None
    assert "files and folders, 10 are allowed" in found


def test_a_box_that_can_not_be_checked_keeps_no_other_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
        for number, sleeper in enumerate(sleepers):
            BoxState(Handle.of(sleeper.pid), LIMITS).write(tmp_path / f"env-{number}.json")
        asked = []

        def exceeded(path: Path, state: BoxState, members: list[Process]) -> str | None:
            asked.append(path)
            if len(asked) == 1:
                raise RecursionError
            return None

        watch = Watch(tmp_path)
        monkeypatch.setattr(watch, "exceeded_limit", exceeded)
        assert watch.check_boxes() == []
        assert len(asked) == 2
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
