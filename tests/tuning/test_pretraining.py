"""A model from scratch: a short training on a few traces, which nano then serves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.installation import installed
from tests.support.nano_server import serving
from tests.support.trl import PYTHON
from weavegen.chat_template import renderer
from weavegen.kernel.template import derive
from weavegen.pool.client import ModelClient
from weavegen_nano import WEIGHTS

PLAN = {
    "vocabulary": 1024, "layers": 3, "width": 96, "heads": 3, "inner": 256, "epochs": 8, "held_out": 0.05, "batch": 4,
    "rate": 4e-3, "close_ups": {"sums": 200}, "drills": {"sums": 100},
}  # fmt: skip


@pytest.mark.timeout(1800)
def test_a_model_learns_from_traces_and_is_served(trl_environ: dict[str, str], tmp_path: Path) -> None:
    with installed() as teacher:
        how = ["-n", "20", "--ticks", "3", "--seed", "3", "--set", "rounds=[1]"]
        teacher.wait(teacher.json("enqueue", ROOT / "bootstraps" / "sums.py", *how)["job"], 300)
        teacher.json("export", "--format", "text", "--out", tmp_path / "text")
    folder, prepared = tmp_path / "scratch", tmp_path / "prepared.npz"
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "pretraining.prepare", tmp_path / "text", prepared, json.dumps(PLAN)],
        [PYTHON, "-m", "pretraining.pretrain", prepared, folder],
    ]
    for command in commands:
        done = subprocess.run(command, env=trl_environ, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    measures = json.loads(done.stdout.splitlines()[-1])
    assert measures["loss"] < 2.0, measures
    assert 0 <= measures["sums"] <= 1
    about = json.loads((folder / "training.json").read_text())
    assert (about["tasks"], about["epochs"]) == (["sums"], PLAN["epochs"])
    with serving(folder) as url:
        client = ModelClient(url, "EMPTY", None)
        assert client.model == "scratch"
        assert client.template().block_close == derive(renderer(WEIGHTS)).block_close  # the tokenizer knows this form
        assert client.encode("#startblock type: action\n").ids
        client.close()
