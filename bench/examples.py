"""What do retrieved blocks tell a model? The log probability of the same blocks after prompts with and without them.

weavegen-nano writes games twice: with the example blocks in the database, and without. It reads no retrieved blocks, so
with equal seeds both databases hold the same traces, with the same candidates for each block and the same success, and
only the recorded prompts differ. The model at OPENAI_BASE_URL then reads kept blocks that ran after both prompts, in
its own template. BENCH_STUDENT is the folder with its tokenizer, BENCH_TRACES the games of each bootstrap.
"""

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console

from bench.bars import Figure, in_percent, table
from bench.installation import home, installation
from weavegen.cli import watch
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.evaluator.evaluation import ratio, share
from weavegen.store.session import database

TRACES = int(os.environ.get("BENCH_TRACES", "16"))
TICKS = int(os.environ.get("BENCH_TICKS", "12"))
MOST_READ = 64
"""Blocks that the model reads, at most."""
BOOTSTRAPS = ("sums.py", "tictactoe.py")
LENGTH = int(os.environ.get("BENCH_LENGTH", "8192"))
"""Longest sequence that the model reads."""
WHERE = "type in ('action', 'evaluation') and ran"
Key = tuple[int, int]
"""Trace and index of a block."""
Tokens = tuple[list[int], list[int]]
"""Ids of the prompt and of the block's text."""
Traces = list[tuple[int, int, bool]]
"""Of each trace: candidates, blocks written from them, success."""


def written(folder: Path, student: Path, *, seeded: bool) -> tuple[dict[Key, Tokens], Traces]:
    """The blocks that nano keeps, with their prompts, in the student's tokens, and what its traces came to."""
    with installation(folder, WEAVEGEN_MODEL="nano", OPENAI_BASE_URL=""):
        if not seeded:
            with database().begin() as conn:
                conn.execute(Statement("delete from examples"))
        files = [enqueueing.BOOTSTRAPS / name for name in BOOTSTRAPS]
        watch.show(enqueueing.enqueue(*files, n=TRACES, seed=7, settings={"ticks": TICKS}), stderr=True)
        order = ["export", "--format", "sft", "--student", str(student), "--where", WHERE, "--out", str(folder / "sft")]
        for command in (order, ["refresh"]):
            subprocess.run([sys.executable, "-m", "weavegen.cli", *command], check=True, stdout=sys.stderr)
        with database().connect() as conn:
            counted = conn.execute(Statement("select candidates, written, success from trace_stats order by trace_id"))
            traces = [(int(row.candidates), int(row.written), bool(row.success)) for row in counted]
    rows = pq.read_table(folder / "sft" / "data").to_pylist()
    found = {}
    for row in rows:
        read = sum(label == -100 for label in row["labels"])
        found[row["trace_id"], row["index"]] = (row["input_ids"][:read], row["input_ids"][read:])
    return found, traces


def log_probability(client: httpx2.Client, model: str, tokens: Tokens) -> float:
    """The sum of the log probabilities of a block's tokens after its prompt, in nats."""
    prompt, block = tokens
    body = {"model": model, "prompt": prompt + block, "max_tokens": 1, "prompt_logprobs": 0, "temperature": 0}
    [choice] = client.post("completions", json=body).raise_for_status().json()["choices"]
    places = choice["prompt_logprobs"][len(prompt) :]
    return float(sum(place[str(token)]["logprob"] for token, place in zip(block, places, strict=True)))


def run(console: Console) -> list[Figure]:
    """Write with nano, twice, and have the model at OPENAI_BASE_URL read what was written."""
    url, student = os.environ["OPENAI_BASE_URL"].rstrip("/") + "/", Path(os.environ["BENCH_STUDENT"])
    with home() as folder, home() as other:
        seeded, traces = written(folder, student, seeded=True)
        empty, other_traces = written(other, student, seeded=False)
    same = [key for key in seeded if key in empty and seeded[key][1] == empty[key][1]]
    changed = [key for key in same if seeded[key][0] != empty[key][0]]
    fitting = [
        key for key in changed if all(len(prompt + block) < LENGTH for prompt, block in (seeded[key], empty[key]))
    ][:MOST_READ]
    with httpx2.Client(base_url=url, timeout=600) as client:
        model = client.get("models").raise_for_status().json()["data"][0]["id"]
        pairs = [
            (log_probability(client, model, seeded[key]), log_probability(client, model, empty[key])) for key in fitting
        ]
    gains = np.array([with_ - without for with_, without in pairs])
    half = 1.96 * gains.std(ddof=1) / np.sqrt(len(gains))
    added = [len(seeded[key][0]) - len(empty[key][0]) for key in fitting]
    rows: list[list[object]] = [
        ["blocks that nano kept, with examples", len(seeded)],
        ["of these the same without examples", len(same)],
        ["of these with another prompt", len(changed)],
        ["of these short enough, and read by the model", len(fitting)],
        ["tokens of a block", float(np.mean([len(seeded[key][1]) for key in fitting]))],
        ["tokens that the examples add to a prompt", float(np.mean(added))],
        ["log probability of a block without examples, nats", float(np.mean([without for _, without in pairs]))],
        ["gain, nats [95%]", f"{gains.mean():+.1f} [{gains.mean() - half:+.1f}, {gains.mean() + half:+.1f}]"],
        ["blocks that gain", f"{(gains > 0).mean():.0%}"],
    ]
    outcomes = [["with examples", *outcome(traces)], ["without", *outcome(other_traces)]]
    columns = ("", "candidates for each block [95%]", "success [95%]")
    console.print(table(f"\nweavegen-nano, {len(traces)} traces with equal seeds", columns, outcomes))
    console.print(table(f"\n{model} reads blocks of {', '.join(BOOTSTRAPS)}", ("", ""), rows))
    return [Figure("blocks of nano that differ, though it reads no examples", len(seeded) - len(same), "", at_most=0)]


def outcome(traces: Traces) -> tuple[str, str]:
    """Candidates for each block and success, with intervals."""
    each = ratio([candidates for candidates, _, _ in traces], [blocks for _, blocks, _ in traces])
    return f"{each.value:.2f} [{each.low:.2f}, {each.high:.2f}]", in_percent(share([success for *_, success in traces]))
