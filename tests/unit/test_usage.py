"""The command line without any service: arguments that are refused in one line, with exit code 2, and the output."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT, TICTACTOE, command


def refusal(folder: Path, *arguments: str | Path, **environ: str) -> str:
    """The line with which a command is refused in a new installation."""
    given = {"PATH": os.environ["PATH"], "WEAVEGEN_HOME": str(folder / "home")} | environ
    done = command.run(list(map(str, arguments)), given, folder, 60)
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    [line] = done.stderr.splitlines()
    return line


def test_a_backup_replaces_only_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link", ".", "missing/corpus.dump"):
        assert "can't be a file" in refusal(tmp_path, "backup", name)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_symlink()


def test_a_pattern_that_matches_several_files_can_not_be_checked(tmp_path: Path) -> None:
    for name in ("one.py", "two.py"):
        shutil.copy(TICTACTOE, tmp_path / name)
    assert refusal(tmp_path, "check", "*.py").endswith("*.py names 2 files: give one of them")


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["rescore", "--stop", "ran", "--dry-run"], "for a new campaign"),
        (["rescore", "--retry", "ran", "--limit", "3"], "for a new campaign"),
        (["rescore", "--list", "--dry-run"], "for a new campaign"),
        (["doctor", "--only", "fork"], "give --sandbox"),
        (["enqueue", "one.py", "--image", "base=rootfs"], "give --harbor"),
        (["enqueue", "one.py", "--timeout-multiplier", "2"], "give --harbor"),
        (["enqueue", "one.py", "--skip-unsupported"], "give --harbor"),
    ],
)
def test_options_that_would_be_ignored(tmp_path: Path, arguments: list[str], advice: str) -> None:
    assert advice in refusal(tmp_path, *arguments)


def test_options_with_an_open_quotation_mark(tmp_path: Path) -> None:
    given = ("up", "--vllm", "some/model", "--vllm-options", "--x '/y")
    assert "--vllm-options can't be read" in refusal(tmp_path, *given)


def test_a_group_without_a_command_prints_only_its_help(tmp_path: Path) -> None:
    done = command.run(["nano"], {"PATH": os.environ["PATH"]}, tmp_path, 60)
    assert (done.returncode, done.stderr, "serve" in done.stdout) == (2, "", True)


def test_a_reader_that_has_read_enough_is_no_error() -> None:
    end, output = os.pipe()
    os.close(end)  # as `| head -0` does
    program = [sys.executable, "-m", "weavegen.cli", "--version"]
    with open(output, "wb") as pipe:
        done = subprocess.run(program, cwd=ROOT, stdout=pipe, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
