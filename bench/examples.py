"""What do retrieved blocks tell a model? The log probability of the same blocks after prompts with and without them.

weavegen-nano writes games twice: with the example blocks in the database, and without. It reads no retrieved blocks, so
with equal seeds both databases hold the same traces, and only the recorded prompts differ. The model at OPENAI_BASE_URL
then reads every kept block that ran after both prompts, in its own template. BENCH_STUDENT is the folder with its
tokenizer, BENCH_TRACES the games of each bootstrap.
"""

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console

from bench.bars import Figure, table
from bench.installation import home, installation
from weavegen.cli import watch
from weavegen.database import Statement
from weavegen.engine import enqueueing
from weavegen.store.session import database

TRACES = int(os.environ.get("BENCH_TRACES", "4"))
TICKS = 3
BOOTSTRAPS = ("sums.py", "tictactoe.py")
LENGTH = int(os.environ.get("BENCH_LENGTH", "8192"))
"""Longest sequence that the model reads."""
WHERE = "type in ('action', 'evaluation') and ran"
Key = tuple[int, int]
"""Trace and index of a block."""
Tokens = tuple[list[int], list[int]]
"""Ids of the prompt and of the block's text."""


def written(folder: Path, student: Path, *, seeded: bool) -> dict[Key, Tokens]:
    """The blocks that nano keeps, with their prompts, in the student's tokens."""
    with installation(folder, WEAVEGEN_MODEL="nano", OPENAI_BASE_URL=""):
        if not seeded:
            with database().begin() as conn:
                conn.execute(Statement("delete from examples"))
        files = [enqueueing.BOOTSTRAPS / name for name in BOOTSTRAPS]
        watch.show(enqueueing.enqueue(*files, n=TRACES, seed=7, settings={"ticks": TICKS}), stderr=True)
        order = ["export", "--format", "sft", "--student", str(student), "--where", WHERE, "--out", str(folder / "sft")]
        subprocess.run([sys.executable, "-m", "weavegen.cli", *order], check=True, stdout=sys.stderr)
    rows = pq.read_table(folder / "sft" / "data").to_pylist()
    found = {}
    for row in rows:
        read = sum(label == -100 for label in row["labels"])
        found[row["trace_id"], row["index"]] = (row["input_ids"][:read], row["input_ids"][read:])
    return found


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
        seeded, empty = written(folder, student, seeded=True), written(other, student, seeded=False)
    same = [key for key in seeded if key in empty and seeded[key][1] == empty[key][1]]
    changed = [key for key in same if seeded[key][0] != empty[key][0]]
    fitting = [
        key for key in changed if all(len(prompt + block) < LENGTH for prompt, block in (seeded[key], empty[key]))
    ]
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
        ["of these short enough for the model", len(fitting)],
        ["tokens of a block", float(np.mean([len(seeded[key][1]) for key in fitting]))],
        ["tokens that the examples add to a prompt", float(np.mean(added))],
        ["log probability of a block without examples, nats", float(np.mean([without for _, without in pairs]))],
        ["gain, nats [95%]", f"{gains.mean():+.1f} [{gains.mean() - half:+.1f}, {gains.mean() + half:+.1f}]"],
        ["blocks that gain", f"{(gains > 0).mean():.0%}"],
    ]
    console.print(table(f"\n{model} reads blocks of {', '.join(BOOTSTRAPS)}", ("", ""), rows))
    return [Figure("blocks of nano that differ, though it reads no examples", len(seeded) - len(same), "", at_most=0)]
