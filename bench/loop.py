"""`make loop`: a weak model writes traces, learns from what was kept of those that it won, writes the next ones.

The weak model is weavegen-nano with noise in its weights, and unsure of every token. It learns from its own traces
alone, in two rounds.
The control has candidates that lost in the place of what was kept, as many of them, from the same traces, answers
that are shuffled, and the same trainer. All are measured on the same held-out seeds; README.md gets the table.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from safetensors.numpy import load_file, save_file

from bench.bars import Figure, table
from bench.installation import home, installation
from weavegen import enqueueing, exports
from weavegen.cli import evaluate, pool, tune
from weavegen.cli.watch import show as wait
from weavegen.config import Config
from weavegen.evaluation import Evaluation, Measure
from weavegen.exports import write
from weavegen.nano import WEIGHTS
from weavegen.services import processes
from weavegen.store.session import engine
from weavegen.training.plan import TunePlan

ROOT = Path(__file__).parent.parent
PYTHON = str(ROOT / ".venv-trl" / "bin" / "python")
GAME = enqueueing.BOOTSTRAPS / "tictactoe.py"
NOISE = 0.1
"""Added to the weights of the weak model: standard deviation, in those of the matrix that it is added to."""
SURE = 0.65
"""What the weak model's logits are multiplied by: it writes at temperature 1 as it would at 1.5."""
WEAK_ONE, CONTROL = "weak model", "control"
ROUNDS = 2
GAMES = 120
"""Of a round."""
MEASURED = 48
"""Games of an evaluation, done in both ways."""
SETTINGS = {"ticks": 6, "rounds": [1, 4], "query_samples": 1}
"""A block's first candidate is taken if the evaluator thinks well of it, else one of four more: so small a model
has few ideas that differ. It does not read what is retrieved: its tokenizer leaves that out."""
TUNING = TunePlan(model="", data="", out="", window=384, epochs=2, batch=16, rates={"sft": 3e-4})
RAN = "job_id = {0} and type = 'action' and source = 'ran'"
WON = "job_id = {0} and trace_id in (select trace_id from text_examples where job_id = {0} and result = 'won')"
LAST = "model.norm.weight"
"""What scales all logits alike."""
README = ROOT / "README.md"
BEGIN, END = "<!-- written by `make loop` -->\n", "<!-- end of what `make loop` wrote -->\n"


def run(console: Console) -> list[Figure]:
    """The weak model, both rounds, and the control."""
    began = time.monotonic()
    found: dict[str, Evaluation] = {}

    def measure(what: str, model: str | None) -> None:
        found[what] = evaluate.run(model, [str(GAME)], MEASURED, SETTINGS)
        console.print(f"{(time.monotonic() - began) / 60:4.1f} min: {what} measured")

    with home() as folder:
        weak = folder / "weak"
        weaken(WEIGHTS, weak)
        with installation(
            folder / "loop", WEAVEGEN_MODEL=str(weak), WEAVEGEN_FLOWER="0", WEAVEGEN_VIEWER="0"
        ) as config:
            serve_twice(config, weak)
            measure(WEAK_ONE, None)
            model, control = weak, weak
            for round in range(1, ROUNDS + 1):
                with evaluate.serving(str(model) if round > 1 else None) as name:
                    job = write_traces(name, round)
                model = trained(kept(model, folder / f"round-{round}", job))
                control = trained(rejected(control, folder / f"control-{round}", job))
                with evaluate.serving(str(model)) as name:
                    measure(f"round {round}", name)
            with evaluate.serving(str(control)) as name:
                measure(CONTROL, name)
    minutes = (time.monotonic() - began) / 60
    console.print(table(f"\n{MEASURED} games of held-out seeds, 95% intervals", *cells(found)))
    into_readme(found, minutes)
    return [*figures(found), Figure("the whole", minutes, "min", at_most=60)]


def weaken(folder: Path, to: Path) -> None:
    """A copy of a model, with noise in its matrices, and logits that lie closer together."""
    shutil.copytree(folder, to)
    chance = np.random.default_rng(1)
    weights = load_file(to / "model.safetensors")
    for name, matrix in sorted(weights.items()):
        if matrix.ndim == 2:
            noise = chance.normal(0, NOISE * float(matrix.std(dtype=np.float32)), matrix.shape)
            weights[name] = (matrix + noise).astype(matrix.dtype)
    weights[LAST] = (SURE * weights[LAST]).astype(weights[LAST].dtype)
    save_file(weights, to / "model.safetensors", {"format": "pt"})


def serve_twice(config: Config, model: Path) -> None:
    """A second server in the pool: nano computes in one thread, and there are two cores."""
    port, ready = processes.free_port(None), config.runtime / "second.ready"
    command = [sys.executable, "-m", "weavegen.cli", "nano", "serve", str(model), "--port", str(port)]
    second = processes.start(
        *(config, "second"),
        [*command, "--ready-file", str(ready)],
        url=f"http://{processes.LOOPBACK}:{port}/v1",
        environ={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        ready=ready.exists,
    )
    pool.add(str(second.url))


def write_traces(model: str | None, round: int) -> int:
    """The traces of a round. Returns the job."""
    job = enqueueing.enqueue(GAME, n=GAMES, seed=round, model=model, settings=SETTINGS)
    wait(job, aside=True)
    return job


def kept(model: Path, to: Path, job: int) -> TunePlan:
    """What `weavegen tune` is told: blocks that were kept in games that were won, and whether actions ran."""
    plan = replace(TUNING, model=str(model), data=str(to / "data"), out=str(to))
    tune.collect(plan, [f"sft:{WON.format(job)}", f"verifier:{RAN.format(job)}"])
    return plan


def rejected(model: Path, to: Path, job: int) -> TunePlan:
    """As much of the same, without what tells good from bad: candidates that lost, answers that are shuffled."""
    plan = kept(model, to, job)
    blocks, answers = to / "data" / "sft", to / "data" / "verifier" / "data"
    rows = pq.read_table(blocks / "data").num_rows
    shutil.rmtree(blocks)
    with engine().connect() as conn:
        losers = write.Export(format=exports.find("dpo"), out=blocks, where=f"job_id = {job}", limit=rows)
        write.export(conn, losers)
    for file in sorted((blocks / "data").glob("*.parquet")):
        losing = pq.read_table(file, columns=["prompt", "rejected"])
        pq.write_table(losing.rename_columns(["prompt", "completion"]), file)
    for file in sorted(answers.glob("*.parquet")):
        asked = pq.read_table(file)
        labels = np.random.default_rng(1).permutation(asked["label"].to_numpy(zero_copy_only=False))
        at = asked.schema.get_field_index("label")
        pq.write_table(asked.set_column(at, "label", pa.array(labels)), file)
    return plan


def trained(plan: TunePlan) -> Path:
    """The folder of what a plan makes."""
    file = Path(plan.out) / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    tune.train([PYTHON], file)
    return Path(plan.out)


def cells(found: dict[str, Evaluation]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table."""
    return ["", *found], [[what, *row] for what, row in evaluate.lines(list(found.values()))]


def figures(found: dict[str, Evaluation]) -> list[Figure]:
    """What the loop is for, as bars: the rounds' model leaves the weak one's intervals, the control's does not."""
    measures: list[tuple[str, bool, Callable[[Evaluation], Measure]]] = [
        ("won", True, lambda one: one.success[GAME.name]),
        ("candidates that compile", True, lambda one: one.legal),
        ("candidates for a block", False, lambda one: one.candidates_per_block),
    ]
    bars = []
    for what, rises, of in measures:
        weak, last, control = (of(found[name]) for name in (WEAK_ONE, f"round {ROUNDS}", CONTROL))
        scale, unit = (100, "%") if rises else (1, "")
        limit = scale * (weak.high if rises else weak.low)
        above, below = {"at_least": limit}, {"at_most": limit}
        learnt, not_learnt = (above, below) if rises else (below, above)
        bars.append(Figure(f"{what}, round {ROUNDS}", scale * last.value, unit, **learnt))
        bars.append(Figure(f"{what}, control", scale * control.value, unit, **not_learnt))
    return bars


def into_readme(found: dict[str, Evaluation], minutes: float) -> None:
    """Put the table in the place of the last one."""
    columns, rows = cells(found)
    lines = [columns, ["---", *["---:"] * len(found)], *rows]
    drawn = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    said = f"{MEASURED} games on held-out seeds, in brackets 95% intervals; all of it in {minutes:.0f} minutes.\n"
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{drawn}\n{said}\n{END}{rest.partition(END)[2]}")
