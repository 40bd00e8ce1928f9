"""Do preference pairs teach? DPO of a pretrained model on pairs by outcome or margin, and on pairs by score alone.

weavegen-nano writes traces with `search=execute`. `weavegen tune` then trains an adapter of the model in BENCH_STUDENT
twice, on equally many pairs: those that `export --format dpo` takes, and those that differ only in the evaluator's
opinion. The trained models rank the pairs of traces that neither training has seen. Needs PyTorch: scripts/trl.sh.
BENCH_TRACES is the number of traces of each bootstrap, BENCH_PAIRS the number of pairs in a training.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from bench.bars import Figure, in_percent, table
from bench.installation import home, installation
from bench.loop import PYTHON, ROOT
from weavegen.cli import watch
from weavegen.engine import enqueueing
from weavegen.evaluator.evaluation import share
from weavegen.training.plan import TunePlan

TRACES = int(os.environ.get("BENCH_TRACES", "16"))
PAIRS = int(os.environ.get("BENCH_PAIRS", "64"))
BOOTSTRAPS = ("sums.py", "tictactoe.py")
SETTINGS = {"search": "execute", "types": {"action": {"rounds": [4, 16]}}, "ticks": 6}
SEEN, HELD_OUT = "trace_id % 3 <> 0", "trace_id % 3 = 0"
KINDS = {
    "by outcome or margin": ["--where", "true"],
    "by score alone": ["--min-margin", "0", "--where", "kind = 'candidates' and not outcome_differs"],
}
"""Pairs by default; and pairs as they would be without trials and without a minimum margin."""


def run(console: Console) -> list[Figure]:
    """Write traces, train on two kinds of pairs, and rank held-out pairs before and after."""
    student = os.environ["BENCH_STUDENT"]
    with home() as folder:
        with installation(folder / "home", WEAVEGEN_MODEL="nano"):
            files = [enqueueing.BOOTSTRAPS / name for name in BOOTSTRAPS]
            watch.show(enqueueing.enqueue(*files, n=TRACES, seed=3, settings=SETTINGS), stderr=True)
            counts = {
                kind: [export(student, options, part, folder / kind / name) for name, part in PARTS.items()]
                for kind, options in KINDS.items()
            }
        pairs = min(PAIRS, *(seen for seen, _ in counts.values()))
        models = {"the model itself": student}
        for kind in KINDS:
            models[f"trained on pairs {kind}"] = str(trained(student, folder / kind, pairs))
        rows: list[list[object]] = []
        right: dict[str, list[bool]] = {}
        for name, model in models.items():
            answers = [ranked(model, folder / kind / "held-out") for kind in KINDS]
            rows.append([name, *(f"{in_percent(share(one))} of {len(one)}" for one in answers)])
            right[name] = answers[0]
    columns = ("", *(f"held-out pairs {kind}" for kind in KINDS))
    title = f"\nPairs whose better text is the likelier one [95%]; trained on {pairs} pairs"
    console.print(table(title, columns, rows))
    return gains(right["the model itself"], right["trained on pairs by outcome or margin"])


def gains(before: list[bool], after: list[bool]) -> list[Figure]:
    """What training changed on the same pairs. The bar is that more than chance changed for the better.

    If no pair changed, or as many for the worse, it is missed: a gain of nothing shows nothing.
    """
    changed = [now for then, now in zip(before, after, strict=True) if then != now]
    gain = 100 * (sum(after) - sum(before)) / len(after)
    better = "changed pairs that changed for the better, lower end of the interval"
    return [
        Figure("gain on held-out pairs by outcome or margin", gain, "points"),
        Figure(f"of {len(changed)} {better}", 100 * share(changed).low, "%", at_least=50),
    ]


PARTS = {"seen": SEEN, "held-out": HELD_OUT}


def export(student: str, options: list[str], part: str, to: Path) -> int:
    """Write the pairs of a part of the traces for the student. Returns their number."""
    where = f"({options[-1]}) and {part}"
    order = ["export", "--json", "--format", "dpo", "--student", student, "--out", str(to / "dpo")]
    command = [sys.executable, "-m", "weavegen.cli", *order, *options[:-1], where]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return int(sum(json.loads(done.stdout)["rows"].values()))


def trained(student: str, folder: Path, pairs: int) -> Path:
    """An adapter of the student, trained on `pairs` seen pairs."""
    plan = TunePlan(
        model=student, data=str(folder / "seen"), out=str(folder / "trained"), methods=("dpo",), lora=16, window=384,
        epochs=2, batch=4, rates={"dpo": 1e-4}, most=pairs,
    )  # fmt: skip
    Path(plan.out).mkdir()
    path = folder / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    subprocess.run([PYTHON, "-m", "weavegen.training.tune", str(path)], check=True, cwd=ROOT, stdout=sys.stderr)
    return Path(plan.out)


def ranked(model: str, data: Path) -> list[bool]:
    """For each pair, whether the model finds the better text likelier."""
    command = [PYTHON, "-m", "bench.rank_pairs", model, str(data)]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE)
    return [bool(right) for right in json.loads(done.stdout)]
