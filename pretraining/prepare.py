"""Prepares the training of a model from scratch: exported traces and drills become token sequences in one file.

    python -m pretraining.prepare EXPORT FILE.npz ['{"epochs": 2}']

The last argument is JSON with fields of `Plan`. `make weights` runs this program, then `pretraining.pretrain` on the
file, which needs PyTorch and may run on another machine.
"""

import itertools
import json
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from tokenizers import Tokenizer

from pretraining import drills, sequences, tokenizer
from pretraining.sequences import TokenSequence
from weavegen.errors import UsageError
from weavegen.kernel.context import PINNED
from weavegen.trace.render import parse_trace, render_block
from weavegen.training.plan import IGNORED

SPOKEN = 6
"""Drills for each trace in what the tokenizer is trained on: about as many ticks as a trace has."""
ASKED = 100
"""Drills of each task that measure a model."""
CLOSE_UPS = {
    "tictactoe": 26000, "sums": 22000, "nano_practice": 12000, "tictactoe_tournament": 10000, "haunted_mansion": 4000,
}  # fmt: skip
DRILLS = {
    "tictactoe": 6000, "sums": 4000, "nano_practice": 3500, "tictactoe_tournament": 3500, "haunted_mansion": 1500,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Size of the model, and length of its training."""

    vocabulary: int = 2048
    layers: int = 6
    width: int = 192
    heads: int = 6
    inner: int = 512
    window: int = 1024
    """Tokens of prompt and continuation together."""
    epochs: int = 3
    """Passes over the traces. The drills are divided among the passes, each is seen once."""
    close_ups: Mapping[str, int] = field(default_factory=lambda: dict(CLOSE_UPS))
    """Orientations directly after their observations, of each task, before the windows."""
    drills: Mapping[str, int] = field(default_factory=lambda: dict(DRILLS))
    """Whole ticks of each task in the windows."""
    again: float = 0.25
    """Share of the close-ups that come a second time, among the windows, against forgetting."""
    batch: int = 8
    """Windows of a training step; close-ups are four times as many."""
    rate: float = 1e-3
    """Highest learning rate. It is reached after a twentieth of the steps, then falls as a cosine."""
    muon: float = 0.02
    """The same for the layers' matrices, which Muon trains; 0: AdamW trains them like all else."""
    decay: float = 0.1
    """Weight decay of the layers' matrices."""
    held_out: float = 0.02
    """Share of the traces for validation."""
    seed: int = 1


@dataclass(frozen=True)
class Prepared:
    """What a model is trained on and measured by, each part in the order of training."""

    plan: Plan
    tokenizer: Tokenizer
    windows: Sequence[TokenSequence]
    close_ups: Sequence[TokenSequence]
    validation: Sequence[TokenSequence]
    """Windows of traces."""
    asked: Sequence[TokenSequence]
    """ASKED drills of each task of the plan, in its order."""

    def save(self, file: Path) -> None:
        parts = {"plan": np.array(json.dumps(asdict(self.plan))), "tokenizer": np.array(self.tokenizer.to_str())}
        for name in PARTS:
            part = getattr(self, name)
            parts[f"{name}_lengths"] = np.array([len(ids) for ids, _ in part], np.int32)
            parts[f"{name}_ids"] = np.concatenate([ids for ids, _ in part] or [EMPTY]).astype(np.uint16)
            parts[f"{name}_taught"] = np.packbits(np.concatenate([labels for _, labels in part] or [EMPTY]) >= 0)
        np.savez_compressed(file, **parts)  # type: ignore[arg-type]


PARTS = ("windows", "close_ups", "validation", "asked")
EMPTY = np.zeros(0, np.int32)


def load(file: Path) -> Prepared:
    """What `Prepared.save` has written."""
    with np.load(file) as parts:
        found = []
        for name in PARTS:
            ids = parts[f"{name}_ids"].astype(np.int32)
            taught = np.unpackbits(parts[f"{name}_taught"], count=len(ids)).astype(bool)
            ends = np.cumsum(parts[f"{name}_lengths"])[:-1]
            labels = np.where(taught, ids, IGNORED).astype(np.int32)
            pairs = zip(np.split(ids, ends), np.split(labels, ends), strict=True)
            found.append(list(pairs) if len(ids) else [])
        plan = Plan(**json.loads(str(parts["plan"])))
        return Prepared(plan, Tokenizer.from_str(str(parts["tokenizer"])), *found)


def prepare(export: Path, plan: Plan, say: Callable[[str], None]) -> Prepared:
    """Train a tokenizer on a `text` export and on drills, and cut both into windows and close-ups.

    Raises UsageError if there is too little text.
    """
    texts = read_texts(export)
    rng = random.Random(plan.seed)
    rng.shuffle(texts)
    traces = [parse_trace(text)[PINNED:] for text in texts]
    held_out = max(1, round(len(traces) * plan.held_out))
    splits = traces[held_out:], traces[:held_out]
    drilled = drills.make(plan.drills, rng)
    near = drills.make(plan.close_ups, rng, near=True)
    asked = [tick for task in plan.drills for tick in drills.make({task: ASKED}, rng)]
    spoken = itertools.chain(*splits[0], *drilled[: len(splits[0]) * SPOKEN])
    words = tokenizer.train((render_block(block) for block in spoken), plan.vocabulary)
    train, validation = (sequences.read(split, words, plan.seed, plan.window) for split in splits)
    practised, nearly, questions = (
        sequences.read(some, words, plan.seed, plan.window, queries=False) for some in (drilled, near, asked)
    )
    close_ups = sequences.close_ups(train + nearly, words, plan.window // 2, rng)
    again = list(sequences.packed(rng.sample(close_ups, round(plan.again * len(close_ups))), plan.window))
    windows = []
    for number in range(plan.epochs):
        some = list(sequences.windows(train + practised[number :: plan.epochs], words, plan.window, rng))
        some += again[number :: plan.epochs]
        rng.shuffle(some)
        windows += some
    validation_windows = list(sequences.windows(validation, words, plan.window, rng))
    if not windows or not validation_windows:
        raise UsageError(f"{export} has too little text for a window of {plan.window} tokens: enqueue more traces")
    whole = [sequences.joined(tick, words, plan.window) for tick in questions]
    taught = sum(int((labels >= 0).sum()) for _, labels in windows)
    say(
        f"{len(texts):,} traces of {tokens(train):,} tokens, {len(drilled):,} drills of {tokens(practised):,}\n"
        f"close-ups: {len(close_ups):,}, {sum(len(ids) for ids, _ in close_ups):,} tokens\n"
        f"windows of {plan.window}: {len(windows):,}, {len(windows) * plan.window:,} tokens, {taught:,} of them taught"
    )
    return Prepared(plan, words, windows, close_ups, validation_windows, whole)


def tokens(read: Sequence[Sequence[sequences.Piece]]) -> int:
    return sum(len(piece.ids) for pieces in read for piece in pieces)


def read_texts(export: Path) -> list[str]:
    """The traces of a `text` export. Raises UsageError if it is not one."""
    files = sorted((export / "data").glob("*.parquet"))
    if not files:
        raise UsageError(f"{export} is not an export: make one with `weavegen export --format text --out {export}`")
    try:
        return [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    except KeyError:
        raise UsageError(f"{export} has no column `text`: export with `--format text`") from None


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        given = Plan(**json.loads(sys.argv[3])) if len(sys.argv) > 3 else Plan()
        prepare(Path(sys.argv[1]), given, lambda line: logging.warning("%s", line)).save(Path(sys.argv[2]))
    except UsageError as error:
        sys.exit(str(error))
