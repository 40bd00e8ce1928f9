"""A turn of the loop with a small model from scratch: it writes, is measured, is trained, writes again."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ROOT, Installation, installed
from tests.trl.conftest import PYTHON, environ

__all__ = ["environ"]  # a fixture

pytestmark = pytest.mark.timeout(900)  # what the first one needs is made in it

SUMS = ROOT / "bootstraps" / "sums.py"
OF_THE_SHARE = ("value", "low", "high", "of")


PLAN = {"vocabulary": 1024, "layers": 3, "width": 96, "heads": 3, "inner": 256, "epochs": 10, "held_out": 0.05}


@pytest.fixture(scope="module")
def weights(environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has seen forty traces of the simulation: most of its blocks are legal."""
    folder = tmp_path_factory.mktemp("scratch")
    for teacher in installed():
        how = ["-n", "40", "--ticks", "3", "--seed", "3", "--set", "rounds=[1]"]
        teacher.wait(teacher.json("enqueue", SUMS, *how)["job"], 300)
        teacher.json("export", "--format", "text", "--out", folder / "text")
    command = [PYTHON, "-m", "weavegen.training.pretrain", folder / "text", folder / "scratch", json.dumps(PLAN)]
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["loss"] < 2.0, done.stdout
    return folder / "scratch"


@pytest.fixture(scope="module")
def nano(environ: dict[str, str], weights: Path) -> Iterator[Installation]:
    yield from installed(**(environ | {"WEAVEGEN_MODEL": str(weights), "PYTHONPATH": str(ROOT)}))


@pytest.fixture(scope="module")
def evaluated(nano: Installation) -> Any:
    return nano.json("eval", "--file", SUMS, "-n", "2", "--ticks", "2")


def tuned(nano: Installation, out: Path, *options: str | Path) -> Any:
    """A short run on what the evaluation's jobs have written."""
    short = ["--window", "512", "--most", "12", "--batch", "4", "--rate", "1e-4", "--launch", str(PYTHON)]
    return nano.json("tune", nano.config.model, "--out", out, *short, *options)


def test_a_model_is_measured(nano: Installation, evaluated: Any) -> None:
    for name in ("legal", "ran"):
        assert tuple(evaluated[name]) == OF_THE_SHARE
        assert 0 <= evaluated[name]["low"] <= evaluated[name]["value"] <= evaluated[name]["high"] <= 1
    assert evaluated["success"]["sums.py"]["of"] == 2
    assert evaluated["candidates_per_block"]["value"] >= 4
    [[chosen, alone]] = nano.sql(
        "select min(job_id), max(job_id) from traces t join jobs j on j.id = t.job_id where j.name like 'eval %'"
    )
    [[legal]] = nano.sql(
        "select avg(p.compiles::int) from candidates c join penalties p on p.candidate_id = c.id "
        "join traces t on t.id = c.trace_id where t.job_id = :job",
        job=alone,
    )
    assert evaluated["legal"]["value"] == pytest.approx(float(legal))
    rounds = nano.sql(
        "select max(c.round) from candidates c join traces t on t.id = c.trace_id where t.job_id = :job", job=alone
    )
    assert rounds == [(0,)]
    assert chosen < alone


@pytest.mark.parametrize("options", [("--lora", "4"), ("--method", "sft", "--method", "dpo")])
def test_it_is_trained_and_served_beside_what_it_was(
    nano: Installation, evaluated: Any, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out, name = tmp_path / "round-1", f"round-{len(options)}"
    told = tuned(nano, out, *options, "--load", name)
    assert told["rows"]["sft"] > 12, "Is the evaluation's corpus there?"
    assert all(0 < loss < 20 for loss in told["losses"].values()), told
    plan = json.loads((out / "plan.json").read_text())
    assert (plan["most"], plan["window"]) == (12, 512)
    assert (out / "adapter_config.json").exists() == ("--lora" in options)
    job = nano.json("enqueue", SUMS, "--ticks", "1", "--model", name)["job"]
    nano.wait(job)
    wrote = "select j.model, t.status from jobs j join traces t on t.job_id = j.id where j.id = :job"
    assert nano.sql(wrote, job=job) == [(name, "ended")]
    assert nano.cli("pool", "unload", name).returncode == 0


def test_what_it_was_trained_on_is_what_was_asked_for(nano: Installation, evaluated: Any, tmp_path: Path) -> None:
    told = tuned(nano, tmp_path / "one", "--where", "type = 'action'", "--where", "verifier:source = 'ran'")
    [[actions]] = nano.sql("select count(*) from sft_examples where type = 'action'")
    [[answers]] = nano.sql("select count(*) from verifier_labels where type = 'action' and source = 'ran'")
    assert told["rows"] == {"sft": actions, "verifier": answers}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--where", "nothing = 1"), 'column "nothing" does not exist'),
        (("--method", "ppo"), "there is no method 'ppo'"),
        (("--launch", "/no/such/python"), "can't be started"),
        (("--out", "/"), "exists"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    nano: Installation, evaluated: Any, tmp_path: Path, options: Any, says: str
) -> None:
    done = nano.cli("tune", "no-model", "--out", tmp_path / "out", *options)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()
