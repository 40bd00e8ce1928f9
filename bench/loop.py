"""`make loop`: a weak model writes traces, learns from what was kept where it won, writes the next ones.

The weak model is weavegen-nano, but unsure of every token. It learns from its own traces alone, in two rounds,
each of which begins with the weak model again and has the traces of all rounds (STaR, arXiv:2203.14465).
The control has candidates that lost in the place of what was kept, as many of them, from the same traces, answers
that are shuffled, and the same trainer. All are measured on the same held-out seeds; README.md gets the table.
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
from weavegen.nano import WEIGHTS
from weavegen.services import fleet, model_server
from weavegen.training.plan import TunePlan

ROOT = Path(__file__).parent.parent
PYTHON = str(ROOT / ".venv-trl" / "bin" / "python")
GAME = enqueueing.BOOTSTRAPS / "tictactoe.py"
PARAMS = {"opponent": "random"}
"""Against the basic one even perfect play wins no more than 83% after that opening: less depends on the player."""
SURE = 0.67
"""What the weak model's logits are multiplied by: it writes at temperature 1 as weavegen-nano would at 1.5."""
WEAK_ONE, CONTROL = "weak model", "control"
ROUNDS = 2
GAMES = 48
"""Of a round."""
MEASURED = 80
"""Games of an evaluation, done in both ways."""
SETTINGS = {"ticks": 6, "rounds": [1, 4], "query_samples": 1, "top_k": -1, "repetition_penalty": 1.0}
"""Candidates are sampled from all that the model may write: were its unlikeliest tokens cut off, it would learn
that from any of its samples, and the control's are some. A block's first candidate is taken if the evaluator
thinks well of it, else one of four more: so small a model has few ideas that differ. It does not read what is
retrieved: its tokenizer leaves that out."""
TUNING = TunePlan(
    model="", data="", out="", norms=True, window=384, most=1000, epochs=2, batch=16, rates={"sft": 3e-2}
)
"""The norms alone: a thousand examples can't tell what three million weights should be."""
RAN = "type = 'action' and source = 'ran'"
WON = "trace_id in (select trace_id from text_examples where result = 'won')"
USUAL = "type in ('orientation', 'action', 'expectation', 'evaluation')"
"""The types of block that a tick without errors has. What the weak model writes of errors is bad even if kept."""
LAST = "model.norm.weight"
"""What scales all logits alike."""
README = ROOT / "README.md"
BEGIN, END = "<!-- written by `make loop` -->\n", "<!-- end of what `make loop` wrote -->\n"


def run(console: Console) -> list[Figure]:
    """The weak model, both rounds, and the control."""
    began = time.monotonic()
    found: dict[str, Evaluation] = {}

    def measure(what: str, model: str | None) -> None:
        found[what] = evaluate.run(model, [str(GAME)], MEASURED, SETTINGS, params=PARAMS)
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
    console.print(table(f"\n{MEASURED} games of held-out seeds, 95% intervals", *cells(found)))
    into_readme(found, minutes)
    return [*figures(found), Figure("the whole", minutes, "min", at_most=60)]


def weaken(folder: Path, to: Path) -> None:
    """A copy of a model whose logits lie closer together."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    weights[LAST] = (SURE * weights[LAST]).astype(weights[LAST].dtype)
    save_file(weights, to / "model.safetensors", {"format": "pt"})


def serve_twice(config: Config, model: Path) -> None:
    """A second server in the pool: nano computes in one thread, and there are two cores."""
    second = model_server.launch_nano(config, "second", model, None, fleet.child_environment(config))
    pool.add(str(second.url))


def write_traces(model: str | None, round: int) -> int:
    """The traces of a round. Returns the job."""
    job = enqueueing.enqueue(GAME, n=GAMES, params=PARAMS, seed=round, model=model, settings=SETTINGS)
    wait(job, stderr=True)
    return job


def kept(model: Path, to: Path, jobs: Sequence[int], *besides: str) -> TunePlan:
    """What `weavegen tune` is told: blocks that were kept in games that were won, and whether actions ran.

    `besides`: methods whose exports are to lie there, too.
    """
    plan = replace(TUNING, model=str(model), data=str(to / "data"), out=str(to))
    theirs = f"job_id in ({', '.join(map(str, jobs))})"
    where = [theirs, f"sft:{WON} and {USUAL}", f"dpo:{USUAL}", f"verifier:{RAN}"]
    tune.collect(replace(plan, methods=(*plan.methods, *besides)), where)
    return plan


def rejected(model: Path, to: Path, jobs: Sequence[int]) -> TunePlan:
    """As much of the same, without what tells good from bad: candidates that lost, answers that are shuffled."""
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
    """Put a table in the place of an export's."""
    shutil.rmtree(folder)
    folder.mkdir()
    pq.write_table(table, folder / "other.parquet")


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
