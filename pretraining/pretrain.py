"""Trains a Llama of a few million parameters on exported traces. Needs PyTorch (the extra `training`).

    python -m pretraining.pretrain EXPORT FOLDER ['{"layers": 4}']

The last argument is JSON with fields of `Plan`. `make weights` runs this program.
"""

import json
import logging
import math
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer
from transformers import (
    DataCollatorForSeq2Seq,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from pretraining import sequences, tokenizer
from pretraining.sequences import TokenSequence
from pretraining.tokenizer import BEGIN
from weavegen import chat_template
from weavegen.errors import UsageError
from weavegen.kernel.context import PINNED
from weavegen.trace.render import parse_trace, render_block
from weavegen.training.plan import IGNORED, trainer_options
from weavegen_nano import WEIGHTS
from weavegen_nano.texts import END


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
    epochs: float = 4.0
    """Passes over the windows of the traces."""
    batch: int = 8
    """Windows of a training step; close-ups are four times as many."""
    rate: float = 2e-3
    """Highest learning rate. It is reached after a twentieth of the steps, then falls as a cosine."""
    close_ups: int = 8
    """Passes over the close-ups (orientations directly behind their observations) before the windows."""
    again: int = 8
    """Further passes over the close-ups among the windows, against forgetting."""
    held_out: float = 0.02
    """Share of the traces for validation."""
    seed: int = 1


def pretrain(export: Path, folder: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, float]:
    """Train a tokenizer and a model on a `text` export, and write them to `folder`.

    The format is Hugging Face's, with weights in float16. Returns the loss on validation traces in nats. Raises
    UsageError if there is too little text.
    """
    texts = read_texts(export)
    rng = random.Random(plan.seed)
    rng.shuffle(texts)
    traces = [parse_trace(text)[PINNED:] for text in texts]
    held_out = max(1, round(len(traces) * plan.held_out))
    splits = traces[held_out:], traces[:held_out]
    words = tokenizer.train((render_block(block) for blocks in splits[0] for block in blocks), plan.vocabulary)
    train, validation = (sequences.read(split, words, plan.seed) for split in splits)
    passes = range(math.ceil(plan.epochs))
    windows = [window for _ in passes for window in sequences.windows(train, words, plan.window, rng)]
    validation_windows = list(sequences.windows(validation, words, plan.window, rng))
    windows = windows[: round(len(windows) * plan.epochs / len(passes))]
    close_ups, validation_close_ups = (
        sequences.close_ups(split, words, plan.window // 4, rng) for split in (train, validation)
    )
    for _ in range(plan.again):
        rng.shuffle(close_ups)
        windows += sequences.packed(close_ups, plan.window)
    if not windows or not validation_windows:
        raise UsageError(f"{export} has too little text for a window of {plan.window} tokens: enqueue more traces")
    taught = sum(int((labels >= 0).sum()) for _, labels in windows)
    say(
        f"{len(texts):,} traces, {words.get_vocab_size():,} words, {len(windows):,} windows of {plan.window}: "
        f"{len(windows) * plan.window:,} tokens, {taught:,} of them taught"
    )
    torch.manual_seed(plan.seed)
    model = LlamaForCausalLM(llama_config(words, plan))
    say(f"{model.num_parameters():,} parameters, {len(windows) // plan.batch:,} steps")
    if plan.close_ups and close_ups:
        first = trainer(model, plan, folder, close_ups, validation_close_ups, words, plan.batch * 4, plan.close_ups)
        first.train()
        loss = first.evaluate()["eval_loss"] if validation_close_ups else "none"
        say(f"{len(close_ups):,} close-ups, validation loss: {loss}")
    last = trainer(model, plan, folder, windows, validation_windows, words, plan.batch, 1)
    last.train()
    measures = {"loss": float(last.evaluate()["eval_loss"])}
    write(model, words, plan, folder)
    return measures


def trainer(
    model: LlamaForCausalLM,
    plan: Plan,
    folder: Path,
    train: Sequence[TokenSequence],
    validation: Sequence[TokenSequence],
    words: Tokenizer,
    batch: int,
    epochs: int,
) -> Trainer:
    """A trainer for token sequences, which are padded to the longest of a step."""
    return Trainer(
        model=model,
        args=TrainingArguments(
            **trainer_options(folder, batch, epochs, plan.rate, plan.seed),
            per_device_eval_batch_size=batch,
            warmup_steps=0.05,
            weight_decay=0.1,
            adam_beta2=0.95,
            bf16=torch.cuda.is_available(),  # see TunePlan.bf16
            use_cpu=not torch.cuda.is_available(),
            logging_steps=20,
        ),
        train_dataset=rows(train),
        eval_dataset=rows(validation),
        data_collator=DataCollatorForSeq2Seq(wrapped(words, plan), label_pad_token_id=IGNORED),
    )


def rows(windows: Sequence[TokenSequence]) -> list[dict[str, Any]]:
    """Token sequences as the trainer reads them."""
    return [
        {"input_ids": ids.tolist(), "labels": labels.tolist(), "attention_mask": [1] * len(ids)}
        for ids, labels in windows
    ]


def llama_config(words: Tokenizer, plan: Plan) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=words.get_vocab_size(),
        hidden_size=plan.width,
        intermediate_size=plan.inner,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads,
        max_position_embeddings=plan.window,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        bos_token_id=words.token_to_id(BEGIN),
        eos_token_id=words.token_to_id(END),
        initializer_range=0.02,
    )


def wrapped(words: Tokenizer, plan: Plan) -> PreTrainedTokenizerFast:
    """The tokenizer for transformers."""
    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token=BEGIN, eos_token=END, pad_token=END, model_max_length=plan.window,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def write(model: LlamaForCausalLM, words: Tokenizer, plan: Plan, folder: Path) -> None:
    """Write weights, tokenizer and the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    model.half().save_pretrained(folder)
    wrapped(words, plan).save_pretrained(folder)
    shutil.copy(WEIGHTS / chat_template.FILE, folder)  # the tokenizer leaves out the instruction in this form only
    (folder / "training.json").write_text(json.dumps(asdict(plan), indent=1) + "\n")


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
        plan = Plan(**json.loads(sys.argv[3])) if len(sys.argv) > 3 else Plan()
        measures = pretrain(Path(sys.argv[1]), Path(sys.argv[2]), plan, lambda line: logging.warning("%s", line))
    except UsageError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(measures) + "\n")
