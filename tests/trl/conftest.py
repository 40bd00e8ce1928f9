"""A small corpus, and TRL's environment. The tests fail if these can't be created; none is skipped."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT, TICTACTOE
from tests.support.installation import Installation, installed
from tests.support.trl import PYTHON, Train


@pytest.fixture(scope="session")
def corpus() -> Iterator[Installation]:
    """Two short games, with prompts short enough for a training step on a CPU."""
    with installed() as one:
        settings = [part for value in ("context=1600", "window=6", "window_kept=3") for part in ("--set", value)]
        job = one.json("enqueue", TICTACTOE, "-n", "2", "--ticks", "3", "--seed", "3", *settings)
        one.wait(int(job["job"]))
        yield one


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, trl_environ: dict[str, str]) -> Path:
    """Folder with a tiny Llama of random weights, and its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny-model")
    command = [str(PYTHON), str(ROOT / "scripts" / "tiny_model.py"), "make", str(folder)]
    made = subprocess.run(command, env=trl_environ, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="session")
def train(model: Path, trl_environ: dict[str, str]) -> Train:
    """`train(trainer, folder)` runs a training step on an export and returns the report of train.py."""

    def run(trainer: str, folder: Path) -> Any:
        command = [str(PYTHON), str(ROOT / "tests" / "trl" / "train.py"), trainer, str(folder), str(model)]
        done = subprocess.run(command, env=trl_environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
