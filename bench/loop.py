"""`make loop`: a weak model writes traces, learns from what was kept of the won games, and writes the next traces.

The weak model is weavegen-nano with flattened probabilities. It learns only from its own traces, in two rounds. Each
round starts training from the weak model, with the traces of all rounds (STaR, arXiv:2203.14465). The control learns
from rejected candidates in place of the kept ones, as many of them from the same traces, and from shuffled answers,
with the same trainer. All are measured on the same held-out seeds. README.md gets the table.
"""

import shutil
import time
from collections.abc import Callable, Sequence
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
from weavegen.cli import evaluate, pool, tune
from weavegen.cli.watch import show as wait
from weavegen.config import Config
from weavegen.engine import enqueueing
from weavegen.evaluator.evaluation import Evaluation, Measure
from weavegen.services import fleet, model_server
from weavegen.training.plan import TunePlan
from weavegen_nano import WEIGHTS

ROOT = Path(__file__).parent.parent
PYTHON = str(ROOT / ".venv-trl" / "bin" / "python")
GAME = enqueueing.BOOTSTRAPS / "tictactoe.py"
PARAMS = {"opponent": "random"}
"""Against the basic opponent even perfect play wins at most 83% after this opening, so less depends on the player."""
SURE = 0.67
"""The factor on the weak model's logits: at temperature 1 it writes as weavegen-nano does at 1.5."""
WEAK_ONE, CONTROL = "weak model", "control"
ROUNDS = 2
GAMES = 48
"""Number of traces in a round."""
MEASURED = 80
"""Games of an evaluation, for each of its settings."""
SETTINGS = {"ticks": 6, "rounds": [1, 4], "query_samples": 1, "top_k": -1, "repetition_penalty": 1.0}
"""Candidates are sampled from all tokens.

If the unlikeliest tokens were cut off, the model would learn this from any of its samples, also from the control's. A
block's first candidate is taken if the evaluator scores it well; otherwise four more are sampled, because so small a
model varies little. Retrieved blocks are not read: the tokenizer leaves them out.
"""
TUNING = TunePlan(
    model="", data="", out="", norms=True, window=384, most=1000, epochs=2, batch=16, min_margin=0, rates={"sft": 3e-2}
)
"""Only the norms are trained: a thousand examples can't determine three million weights."""
RAN = "type = 'action' and source = 'ran'"
WON = "trace_id in (select trace_id from text_examples where result = 'won')"
USUAL = "type in ('orientation', 'action', 'expectation', 'evaluation')"
"""The block types of a tick without errors. What the weak model writes about errors is bad even if it is kept."""
LAST = "model.norm.weight"
"""The weight that scales all logits equally."""
README = ROOT / "README.md"
BEGIN, END = "<!-- written by `make loop` -->\n", "<!-- end of what `make loop` wrote -->\n"


def run(console: Console) -> list[Figure]:
    """Measure the weak model, both rounds, and the control."""
    began = time.monotonic()
    evaluations: dict[str, Evaluation] = {}

    def measure(what: str, model: str | None) -> None:
        evaluations[what] = evaluate.run(model, [str(GAME)], MEASURED, SETTINGS, params=PARAMS)
        console.print(f"{(time.monotonic() - began) / 60:4.1f} min: {what} measured")

    with home() as folder:
        weak = folder / "weak"
        weaken(WEIGHTS, weak)
        with installation(
            folder / "loop", WEAVEGEN_MODEL=str(weak), WEAVEGEN_FLOWER="0", WEAVEGEN_VIEWER="0"
        ) as config:
            serve_twice(config, weak)
            measure(WEAK_ONE, None)
            jobs: list[int] = []
            learnt = None
            for round in range(1, ROUNDS + 1):
                with evaluate.serving(learnt) as model:
                    jobs.append(write_traces(model, round))
                learnt = str(trained(kept(weak, folder / f"round-{round}", jobs)))
                with evaluate.serving(learnt) as model:
                    measure(f"round {round}", model)
            with evaluate.serving(str(trained(rejected(weak, folder / "control", jobs)))) as model:
                measure(CONTROL, model)
    minutes = (time.monotonic() - began) / 60
    console.print(table(f"\n{MEASURED} games of held-out seeds, 95% intervals", *cells(evaluations)))
    into_readme(evaluations, minutes)
    return [*figures(evaluations), Figure("the whole", minutes, "min", at_most=60)]


def weaken(folder: Path, to: Path) -> None:
    """Copy a model and scale its logits down."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    weights[LAST] = (SURE * weights[LAST]).astype(weights[LAST].dtype)
    save_file(weights, to / "model.safetensors", {"format": "pt"})


def serve_twice(config: Config, model: Path) -> None:
    """Start a second server for the pool: nano computes in one thread, and there are two cores."""
    second = model_server.launch_nano(config, "second", model, None, fleet.child_environment(config))
    pool.add(str(second.url))


def write_traces(model: str | None, round: int) -> int:
    """Write the traces of a round. Returns the job."""
    job = enqueueing.enqueue(GAME, n=GAMES, params=PARAMS, seed=round, model=model, settings=SETTINGS)
    wait(job, stderr=True)
    return job


def kept(model: Path, to: Path, jobs: Sequence[int], *besides: str) -> TunePlan:
    """The settings of `weavegen tune` for the blocks kept in won games, and for whether actions ran.

    `besides` names methods that are also exported.
    """
    plan = replace(TUNING, model=str(model), data=str(to / "data"), out=str(to))
    theirs = f"job_id in ({', '.join(map(str, jobs))})"
    where = [theirs, f"sft:{WON} and {USUAL}", f"dpo:{USUAL}", f"verifier:{RAN}"]
    tune.collect(replace(plan, methods=(*plan.methods, *besides)), where)
    return plan


def rejected(model: Path, to: Path, jobs: Sequence[int]) -> TunePlan:
    """The same amount of data without the signal: candidates that lost, and shuffled answers."""
    plan = kept(model, to, jobs, "dpo")
    blocks, answers, pairs = (to / "data" / name / "data" for name in ("sft", "verifier", "dpo"))
    chance = np.random.default_rng(1)
    count = pq.read_table(blocks).num_rows
    losers = pq.read_table(pairs, columns=["prompt", "rejected"]).rename_columns(["prompt", "completion"])
    rewrite(blocks, losers.take(chance.permutation(losers.num_rows)[:count]))
    asked = pq.read_table(answers)
    labels = chance.permutation(asked["label"].to_numpy())
    rewrite(answers, asked.set_column(asked.schema.get_field_index("label"), "label", pa.array(labels)))
    return plan


def rewrite(folder: Path, table: pa.Table) -> None:
    """Replace the table of an export."""
    shutil.rmtree(folder)
    folder.mkdir()
    pq.write_table(table, folder / "other.parquet")


def trained(plan: TunePlan) -> Path:
    """Train as planned. Returns the folder of the result."""
    file = Path(plan.out) / "plan.json"
    file.write_bytes(msgspec.json.encode(plan))
    tune.train([PYTHON], file)
    return Path(plan.out)


def cells(evaluations: dict[str, Evaluation]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table."""
    return ["", *evaluations], [[what, *row] for what, row in evaluate.lines(list(evaluations.values()))]


def figures(evaluations: dict[str, Evaluation]) -> list[Figure]:
    """The expected result as bars: the last model leaves the intervals of the weak model, the control does not."""
    measures: list[tuple[str, bool, Callable[[Evaluation], Measure]]] = [
        ("won", True, lambda evaluation: evaluation.success[GAME.name]),
        ("candidates that compile", True, lambda evaluation: evaluation.legal),
        ("candidates for a block", False, lambda evaluation: evaluation.candidates_per_block),
    ]
    bars = []
    for what, rises, of in measures:
        weak, last, control = (of(evaluations[name]) for name in (WEAK_ONE, f"round {ROUNDS}", CONTROL))
        scale, unit = (100, "%") if rises else (1, "")
        limit = scale * (weak.high if rises else weak.low)
        above, below = {"at_least": limit}, {"at_most": limit}
        learnt, not_learnt = (above, below) if rises else (below, above)
        bars.append(Figure(f"{what}, round {ROUNDS}", scale * last.value, unit, **learnt))
        bars.append(Figure(f"{what}, control", scale * control.value, unit, **not_learnt))
    return bars


def into_readme(evaluations: dict[str, Evaluation], minutes: float) -> None:
    """Replace the table in README.md."""
    columns, rows = cells(evaluations)
    lines = [columns, ["---", *["---:"] * len(evaluations)], *rows]
    drawn = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    caption = f"{MEASURED} games on held-out seeds, in brackets 95% intervals; all of it in {minutes:.0f} minutes.\n"
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{drawn}\n{caption}\n{END}{rest.partition(END)[2]}")
