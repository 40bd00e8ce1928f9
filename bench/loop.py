"""`make loop` and `make loop-all`: a weak model learns from its own traces by `weavegen improve`, beside a control.

The weak model is weavegen-nano with flattened probabilities. It learns from its own traces alone. The control is
trained in the same way on rejected candidates, as many of them from the same traces, and on shuffled answers. All
are measured on the same held-out seeds. A run that was interrupted goes on: its state is in the folder .loop.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from safetensors.numpy import load_file, save_file

from bench.bars import Figure, table
from bench.installation import installation
from weavegen.cli import evaluate, improve, pool, tune
from weavegen.cli.app import reading
from weavegen.config import Config
from weavegen.engine import enqueueing
from weavegen.evaluator.evaluation import Evaluation, Measure, share
from weavegen.services import fleet, model_server
from weavegen.store import servers
from weavegen.training.plan import TunePlan
from weavegen.training.rounds import Loop, Order, Round, successes
from weavegen_nano import WEIGHTS

ROOT = Path(__file__).parent.parent
PYTHON = str(ROOT / ".venv-trl" / "bin" / "python")
FOLDER = ROOT / ".loop"
"""What lets a run go on. `make clean` removes it."""
TASKS: dict[str, tuple[Path, dict[str, Any]]] = {
    "tictactoe": (enqueueing.BOOTSTRAPS / "tictactoe.py", {"opponent": "random"}),
    "sums": (enqueueing.BOOTSTRAPS / "sums.py", {"sums": 3}),
}
"""Against the basic opponent even perfect play wins at most 83% after this opening, so less depends on the player."""
SEEDS = (0, 1, 2)
"""Of `make loop-all`; `make loop` has the first."""
SURE = 0.67
"""The factor on the weak model's logits: at temperature 1 it writes as weavegen-nano does at 1.5."""
ROUNDS = 5
GAMES = 48
"""Number of traces in a round."""
MEASURED = 64
"""Games of an evaluation, for each of its settings."""
CONTROL_MEASURED = 40
"""Of the control, which writes so badly that it takes twice as long."""
SETTINGS = {
    "ticks": 6, "rounds": [2], "max_tokens": 320, "query_samples": 1, "top_k": -1, "repetition_penalty": 1.0,
}  # fmt: skip
"""Candidates are sampled from all tokens.

If the unlikeliest tokens were cut off, the model would learn this from any of its samples, also from the control's.
Each block has two candidates, whatever the first is like: where candidates are added until the evaluator is content, a
weak model takes more of them and wins more, which hides what it learns. Most games are decided within four ticks, so
two are left for errors. Longer blocks than `max_tokens` are almost always errors. Retrieved blocks are not read: the
tokenizer leaves them out.
"""
WRITING = {"search": "execute", "rounds": [4]}
"""Actions are tried before one is chosen, so candidates that lost are labels for the judge too."""
TUNING = TunePlan(
    model="", data="", out="", norms=True, balance=True, window=384, most=1200, epochs=2, batch=16,
    min_margin=0, rates={"sft": 3e-2},
)  # fmt: skip
"""Only the norms are trained: a thousand examples can't determine three million weights.

The better the writer, the more labels are Yes: four of five in the third round. Without balance the model learns to
say Yes."""
WHERE = [
    "verifier:type = 'action' and source in ('ran', 'tried') or source = 'drawn'",
    "sft:type in ('action', 'evaluation')",
    "dpo:type in ('action', 'evaluation')",
]
"""Only blocks that were executed are imitated: nothing but the weak model itself has judged the others.

The control's pairs are of the same types. Of the labels those whether actions ran are taken, and as many answers that
the model drew itself (--replay)."""
AUC_LOSS = 0.02
"""The judge is not worse than the weak model's if its AUC is at most so much lower."""
LAST = "model.norm.weight"
"""The weight that scales all logits equally."""
README = ROOT / "README.md"
BEGIN, END = "<!-- written by `make loop` -->\n", "<!-- end of what `make loop` wrote -->\n"
PICTURE = ROOT / "docs" / "images" / "loop.svg"


class Run(NamedTuple):
    """A loop that is over, and its control."""

    loop: Loop
    control: Evaluation
    minutes: float
    """Of its phases, also in earlier processes."""


def run(console: Console) -> list[Figure]:
    """One task and one seed. Writes README.md's table and its plot."""
    done = improved("tictactoe", SEEDS[0], console)
    columns, rows = cells(done)
    console.print(table(f"\n{MEASURED} games of held-out seeds, 95% intervals", columns, rows))
    into_readme(columns, rows, done.minutes)
    shutil.copy(FOLDER / f"tictactoe-{SEEDS[0]}" / "rounds" / "success.svg", PICTURE)
    return [*figures([done]), Figure("the whole", done.minutes, "min", at_most=120)]


def run_all(console: Console) -> list[Figure]:
    """All tasks and seeds, in as many hours as that takes."""
    bars = []
    for task in TASKS:
        runs = [improved(task, seed, console) for seed in SEEDS]
        for seed, done in zip(SEEDS, runs, strict=True):
            console.print(table(f"\n{task}, seed {seed}: {MEASURED} held-out traces, 95% intervals", *cells(done)))
        bars += [replace(figure, what=f"{task}: {figure.what}") for figure in figures(runs)]
    return bars


def improved(task: str, seed: int, console: Console) -> Run:
    """A loop with its control. Phases that an earlier process completed are not repeated."""
    folder = FOLDER / f"{task}-{seed}"
    weak, own = folder / "weak", folder / "rounds"
    if not weak.exists():
        draft = folder / "weak.part"
        shutil.rmtree(draft, ignore_errors=True)
        weaken(WEIGHTS, draft)
        draft.rename(weak)
    file, params = TASKS[task]
    order = Order(
        files=[str(file)], params=params, settings=dict(SETTINGS), writing=dict(WRITING), traces=GAMES,
        held_out=MEASURED, seed=seed, where=list(WHERE), tune=replace(TUNING, model=str(weak), seed=seed + 1),
    )  # fmt: skip
    environ = {"WEAVEGEN_MODEL": str(weak), "WEAVEGEN_FLOWER": "0", "WEAVEGEN_VIEWER": "0"}
    with installation(folder / "home", **environ) as config:
        serve_twice(config, weak)
        with improve.begun(own, order) as loop:
            driver = improve.Driver(own, loop, [PYTHON], None)
            driver.run(ROUNDS, patience=ROUNDS)
            result = folder / "control.json"
            if not result.exists():
                began = time.monotonic()
                plan = rejected(driver, folder / "control")
                tune.train([PYTHON], plan, Path(plan.out))
                with evaluate.serving(plan.out) as model:
                    measured = evaluate.run(model, order.files, CONTROL_MEASURED, SETTINGS, params=params)
                result.write_bytes(msgspec.json.encode((measured, time.monotonic() - began)))
    control, seconds = msgspec.json.decode(result.read_bytes(), type=tuple[Evaluation, float])
    return Run(loop, control, (seconds + sum(sum(round.seconds.values()) for round in loop.rounds)) / 60)


def weaken(folder: Path, to: Path) -> None:
    """Copy a model and scale its logits down."""
    shutil.copytree(folder, to)
    weights = load_file(to / "model.safetensors")
    weights[LAST] = (SURE * weights[LAST]).astype(weights[LAST].dtype)
    save_file(weights, to / "model.safetensors", {"format": "pt"})


def serve_twice(config: Config, model: Path) -> None:
    """Start a second server for the pool: nano computes in one thread, and there are two cores.

    One of an interrupted run is taken out.
    """
    with reading() as conn:
        before = [server.url for server in servers.servers(conn)]
    for url in before:
        pool.remove(url)
    second = model_server.launch_nano(config, "second", model, None, fleet.child_environment(config))
    pool.add(str(second.url))


def rejected(driver: improve.Driver, to: Path) -> TunePlan:
    """The same amount of data without the signal: candidates that lost, and shuffled answers."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    plan = replace(driver.loop.order.tune, data=str(to / "data"), out=str(to))
    driver.collect(replace(plan, methods=(*plan.methods, "dpo")))
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


def cells(done: Run) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the table."""
    names = ["weak model", *(f"round {round.number}" for round in done.loop.rounds[1:]), "control"]
    control = Round(number=len(names), evaluation=done.control)
    return ["", *names], [[what, *row] for what, row in improve.lines([*done.loop.rounds, control])]


def figures(runs: Sequence[Run]) -> list[Figure]:
    """The expected result as bars: success rises and stays, the judge stays as good, the control learns nothing."""
    loops = [done.loop for done in runs]

    def pooled(rounds: Sequence[Round]) -> Measure:
        return share([outcome for round in rounds for outcome in successes(round.evaluation)])

    weak = pooled([loop.rounds[0] for loop in loops])
    last = pooled([loop.rounds[-1] for loop in loops])
    best = pooled([loop.best() for loop in loops])
    control = share([outcome for done in runs for outcome in successes(done.control)])
    lost = [auc_lost(loop.rounds[0], round) for loop in loops for round in loop.rounds]
    return [
        Figure("success, last round", 100 * last.value, "%", at_least=100 * best.low),
        Figure("success, low end of the last round", 100 * last.low, "%", at_least=100 * weak.high),
        Figure("success, control", 100 * control.value, "%", at_most=100 * weak.high),
        Figure("AUC lost on the weak model's actions, worst round", max(lost), "", at_most=AUC_LOSS),
    ]


def auc_lost(weak: Round, round: Round) -> float:
    """How much lower a round's AUC is than the weak model's; 1 if one of them is unknown, so that the bar is missed."""
    return 1.0 if weak.auc is None or round.auc is None else weak.auc - round.auc


def into_readme(columns: list[str], rows: list[list[str]], minutes: float) -> None:
    """Replace the table in README.md."""
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    drawn = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    games = f"{MEASURED} games on held-out seeds, of the control {CONTROL_MEASURED}; in brackets 95% intervals"
    caption = f"{games}; all of it in {minutes:.0f} minutes.\n"
    before, _, rest = README.read_text().partition(BEGIN)
    README.write_text(f"{before}{BEGIN}\n{drawn}\n{caption}\n{END}{rest.partition(END)[2]}")
