"""Memory and speed of a training step of `weavegen tune` by window length. Needs the extra `training`.

    python -m bench.windows [512 1024 ...]

The model has the architecture of SmolLM2-135M with random weights, which cost the same as trained ones. The step is
that of `weavegen tune --lora 16` with one example of the window's length. Without a GPU it uses the CPU in float32;
then memory is the process's highest resident size so far, so give the lengths in ascending order.
"""

import json
import logging
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from peft import LoraConfig
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, TrainerCallback

from weavegen.training.plan import TunePlan
from weavegen.training.tune import supervised
from weavegen_nano import WEIGHTS

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
STEPS = 5
"""Steps of a measurement. The first one is not counted."""
ANSWER = 200
"""Tokens of an example's completion. Each digit is a token, and one more token begins the prompt."""
CONFIG = LlamaConfig(
    vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=32768, rope_theta=100_000.0, tie_word_embeddings=True,
)  # fmt: skip


class Clock(TrainerCallback):  # type: ignore[misc]
    """Seconds of each training step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(now() - self.began)


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(folder: Path, length: int, *, checkpointing: bool) -> dict[str, Any]:
    """Train for some steps at one window length. Returns a row of the table; without memory if there is too little."""
    row: dict[str, Any] = {"length": length, "checkpointing": checkpointing, "device": device()}
    (folder / "sft" / "data").mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": "7" * (length - ANSWER - 1), "completion": "3" * ANSWER} for _ in range(STEPS)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "sft" / "data" / "0.parquet")
    words = AutoTokenizer.from_pretrained(WEIGHTS)
    plan = TunePlan(
        model="", data=str(folder), out=str(folder / "out"), lora=16, window=length, batch=1,
        gradient_checkpointing=checkpointing,
    )  # fmt: skip
    clock = Clock()
    try:
        adapter = LoraConfig(r=plan.lora, lora_alpha=2 * plan.lora, target_modules="all-linear")
        trainer = supervised_on_sft(plan, LlamaForCausalLM(CONFIG), words, adapter)
        trainer.add_callback(clock)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        trainer.train()
    except torch.OutOfMemoryError:
        return row
    row["tokens_per_second"] = round(length / statistics.median(clock.seconds[1:]))
    row["gigabytes"] = round(peak() / 1e9, 2)
    return row


def supervised_on_sft(plan: TunePlan, model: Any, words: Any, adapter: LoraConfig) -> Any:
    trainer = supervised(plan, model, words, adapter)
    assert all(len(example["input_ids"]) == plan.window for example in trainer.train_dataset)
    return trainer


def peak() -> float:
    """The highest memory so far, in bytes."""
    if torch.cuda.is_available():
        return float(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def device() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {torch.get_num_threads()} threads"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    lengths = [int(one) for one in sys.argv[1:]] or LENGTHS
    for checkpointing in (True, False):  # ascending in memory
        for length in lengths:
            with tempfile.TemporaryDirectory() as scratch:
                sys.stdout.write(json.dumps(measure(Path(scratch), length, checkpointing=checkpointing)) + "\n")
                sys.stdout.flush()
