"""A model from scratch: a short training on a few traces, which nano then serves."""

import json
import subprocess
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

PLAN = {"vocabulary": 1024, "layers": 3, "width": 96, "heads": 3, "inner": 256, "epochs": 20, "held_out": 0.05}


@pytest.mark.timeout(1800)
def test_a_model_learns_from_traces_and_is_served(trl_environ: dict[str, str], tmp_path: Path) -> None:
    with installed() as teacher:
        how = ["-n", "20", "--ticks", "3", "--seed", "3", "--set", "rounds=[1]"]
        teacher.wait(teacher.json("enqueue", ROOT / "bootstraps" / "sums.py", *how)["job"], 300)
        teacher.json("export", "--format", "text", "--out", tmp_path / "text")
    folder = tmp_path / "scratch"
    command = [PYTHON, "-m", "pretraining.pretrain", tmp_path / "text", folder, json.dumps(PLAN)]
    done = subprocess.run(command, env=trl_environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["loss"] < 2.0, done.stdout
    assert json.loads((folder / "training.json").read_text())["epochs"] == PLAN["epochs"]
    with serving(folder) as url:
        client = ModelClient(url, "EMPTY", None)
        assert client.model == "scratch"
        assert client.template().block_close == derive(renderer(WEIGHTS)).block_close  # the tokenizer knows this form
        assert client.encode("#startblock type: action\n").ids
        client.close()
