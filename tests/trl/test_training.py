"""TRL's loaders and trainers read the exports unchanged."""

import math
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.installation import Installation
from tests.support.trl import PYTHON, Train
from weavegen import exports
from weavegen.exports.format import RowFormat

README = ROOT / "README.md"
HEADING = "## From there to a trainer"


@pytest.mark.parametrize("name", ["sft", "dpo", "kto", "text"])
def test_one_step_of_each_trainer(corpus: Installation, tmp_path: Path, train: Train, name: str) -> None:
    format = exports.find(name)
    assert isinstance(format, RowFormat)
    options = ["--context-bytes", "6000"] if name == "text" else []
    said = corpus.json("export", "--format", name, "--out", tmp_path / "out", *options)
    told = train(name, tmp_path / "out")
    assert told["rows"] == said["rows"]["train"] > 0
    assert told["columns"] == format.schema.names
    assert math.isfinite(told["loss"])
    assert told["changed"]


def test_the_lines_of_the_readme(
    corpus: Installation, tmp_path: Path, model: Path, trl_environ: dict[str, str]
) -> None:
    """As a new user types them, except for the installation, which exists, and the model, which is not downloaded."""
    section = README.read_text().partition(f"{HEADING}\n")[2].partition("\n## ")[0]
    assert section, f"README.md has no section {HEADING!r}"
    shell = re.findall(r"^    (.*weavegen export .*)$", section, re.MULTILINE)
    [python] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(shell) == 1
    assert len(section.strip().splitlines()) < 20
    assert len([line for line in python.splitlines() if line]) + len(shell) < 10
    command = shell[0].replace(".venv/bin/weavegen", str(Path(sys.executable).parent / "weavegen"))
    done = subprocess.run(
        ["bash", "-c", command], env=corpus.environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # A folder replaces the name on the hub, and one or two steps replace an epoch.
    [named] = re.findall(r'model="([^"]+)"', python)
    shutil.copytree(model, tmp_path / named)
    (tmp_path / "train.py").write_text(
        python.replace("DPOConfig(", "DPOConfig(max_steps=1, use_cpu=True, bf16=False, ")
    )
    done = subprocess.run(
        [str(PYTHON), "train.py"],
        env=trl_environ,
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "train_loss" in done.stdout
