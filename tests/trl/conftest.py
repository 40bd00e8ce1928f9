"""A small corpus, and TRL's environment; nothing is skipped where they can't be had."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ROOT, TICTACTOE, Installation, installed

PYTHON = ROOT / os.environ.get("TRL_VENV", ".venv-trl") / "bin" / "python"

Train = Callable[[str, Path], Any]


@pytest.fixture(scope="session")
def corpus() -> Iterator[Installation]:
    """Two short games, with prompts that a step on a CPU can take."""
    for one in installed():
        settings = [part for value in ("context=1600", "window=6", "window_kept=3") for part in ("--set", value)]
        job = one.json("enqueue", TICTACTOE, "-n", "2", "--ticks", "3", "--seed", "3", *settings)
        one.wait(int(job["job"]))
        yield one


@pytest.fixture(scope="session")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What TRL runs with: no network, caches of its own."""
    cache = tmp_path_factory.mktemp("cache")
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "HOME": str(cache),
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1",
        "TRL_EXPERIMENTAL_SILENCE": "1",
    }


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, environ: dict[str, str]) -> Path:
    """Folder with a tiny Llama of random weights, and its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny-model")
    command = [str(PYTHON), str(ROOT / "scripts" / "tiny_model.py"), "make", str(folder)]
    made = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="session")
def train(model: Path, environ: dict[str, str]) -> Train:
    """`train(trainer, folder)`: a training step on an export; what train.py says of it."""

    def run(trainer: str, folder: Path) -> Any:
        command = [str(PYTHON), str(ROOT / "tests" / "trl" / "train.py"), trainer, str(folder), str(model)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
