"""A Llama of a few million parameters, from scratch, on exported traces. Needs PyTorch (the extra `training`).

    python -m weavegen.training.pretrain EXPORT FOLDER ['{"layers": 4}']

The last is of `Plan`, as JSON. `make weights` runs it.
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

from weavegen.errors import UsageError
from weavegen.kernel.context import PINNED
from weavegen.nano.texts import END
from weavegen.trace.render import parse_trace, render_block
from weavegen.training import sequences, tokenizer
from weavegen.training.plan import IGNORED
from weavegen.training.tokenizer import BEGIN


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The model's size and how long it is trained."""

    vocabulary: int = 2048
    layers: int = 6
    width: int = 192
    heads: int = 6
    inner: int = 512
    window: int = 1024
    """Tokens, prompt and continuation together."""
    epochs: float = 4.0
    """Passes over the traces, in windows."""
    batch: int = 8
    """Windows of a step; of close-ups four times as many."""
    rate: float = 2e-3
    """Learning rate at its highest: after a twentieth of the steps; from there it falls by a cosine."""
    close_ups: int = 8
    """Passes over the orientations behind their observations alone, before the windows."""
    again: int = 8
    """Further passes over these, among the windows: so that it is not forgotten."""
    held_out: float = 0.02
    """Share of the traces that only measure."""
    seed: int = 1


def pretrain(export: Path, folder: Path, plan: Plan, say: Callable[[str], None]) -> dict[str, float]:
    """Train a tokenizer and a model on what `weavegen export --format text` wrote, and write them to `folder`.

    In Hugging Face's format, weights in float16. Returns what was measured, in nats, on traces held out. Raises
    UsageError where there is too little to train on.
    """
    texts = read_texts(export)
    chance = random.Random(plan.seed)
    chance.shuffle(texts)
    traces = [parse_trace(text)[PINNED:] for text in texts]
    held_out = max(1, round(len(traces) * plan.held_out))
    words = tokenizer.train((render_block(one) for blocks in traces[held_out:] for one in blocks), plan.vocabulary)
    parts = [sequences.read(part, words, plan.seed) for part in (traces[held_out:], traces[:held_out])]
    passes = range(math.ceil(plan.epochs))
    found = [window for _ in passes for window in sequences.windows(parts[0], words, plan.window, chance)]
    measured = list(sequences.windows(parts[1], words, plan.window, chance))
    found = found[: round(len(found) * plan.epochs / len(passes))]
    near = [sequences.close_ups(part, words, plan.window // 4, chance) for part in parts]
    for _ in range(plan.again):
        chance.shuffle(near[0])
        found += sequences.packed(near[0], plan.window)
    if not found or not measured:
        raise UsageError(
            f"{export} has too little text for one window of {plan.window} tokens: enqueue more traces"
        )
    taught = sum(int((labels >= 0).sum()) for _, labels in found)
    say(
        f"{len(texts):,} traces, {words.get_vocab_size():,} words, {len(found):,} windows of {plan.window}: "
        f"{len(found) * plan.window:,} tokens, {taught:,} of them taught"
    )
    torch.manual_seed(plan.seed)
    model = LlamaForCausalLM(shape(words, plan))
    say(f"{model.num_parameters():,} parameters, {len(found) // plan.batch:,} steps")
    if plan.close_ups and near[0]:
        first = trainer(model, plan, folder, near[0], near[1], words, plan.batch * 4, plan.close_ups)
        first.train()
        say(f"{len(near[0]):,} close-ups, held out: {first.evaluate()['eval_loss'] if near[1] else 'none'}")
    last = trainer(model, plan, folder, found, measured, words, plan.batch, 1)
    last.train()
    measures = {"loss": float(last.evaluate()["eval_loss"])}
    write(model, words, plan, folder)
    return measures


def trainer(
    model: LlamaForCausalLM,
    plan: Plan,
    folder: Path,
    found: Sequence[tuple[sequences.Ids, sequences.Ids]],
    measured: Sequence[tuple[sequences.Ids, sequences.Ids]],
    words: Tokenizer,
    batch: int,
    epochs: int,
) -> Trainer:
    """For sequences of tokens with their labels, padded to the longest of a step."""
    return Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder / "checkpoints"),
            per_device_train_batch_size=batch,
            per_device_eval_batch_size=batch,
            num_train_epochs=epochs,
            learning_rate=plan.rate,
            lr_scheduler_type="cosine",
            warmup_steps=0.05,
            weight_decay=0.1,
            adam_beta2=0.95,
            bf16=True,
            use_cpu=not torch.cuda.is_available(),
            logging_steps=20,
            save_strategy="no",
            report_to=[],
            seed=plan.seed,
            disable_tqdm=True,
        ),
        train_dataset=rows(found),
        eval_dataset=rows(measured),
        data_collator=DataCollatorForSeq2Seq(wrapped(words, plan), label_pad_token_id=IGNORED),
    )


def rows(found: Sequence[tuple[sequences.Ids, sequences.Ids]]) -> list[dict[str, Any]]:
    """Sequences as a trainer takes them."""
    return [
        {"input_ids": ids.tolist(), "labels": labels.tolist(), "attention_mask": [1] * len(ids)}
        for ids, labels in found
    ]


def shape(words: Tokenizer, plan: Plan) -> LlamaConfig:
    """The model's."""
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
    """The tokenizer as transformers knows it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token=BEGIN, eos_token=END, pad_token=END, model_max_length=plan.window,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


def write(model: LlamaForCausalLM, words: Tokenizer, plan: Plan, folder: Path) -> None:
    """Weights, tokenizer and the plan that they came from."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    model.half().save_pretrained(folder)
    wrapped(words, plan).save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps(asdict(plan), indent=1) + "\n")


def read_texts(export: Path) -> list[str]:
    """The traces of an export in the format `text`. Raises UsageError where it is none."""
    files = sorted((export / "data").glob("*.parquet"))
    if not files:
        raise UsageError(f"{export} is no export: make one with `weavegen export --format text --out {export}`")
    try:
        return [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    except KeyError:
        raise UsageError(f"{export} has no column `text`: export with `--format text`") from None


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        plan = Plan(**json.loads(sys.argv[3])) if len(sys.argv) > 3 else Plan()
        found = pretrain(Path(sys.argv[1]), Path(sys.argv[2]), plan, lambda line: logging.warning("%s", line))
    except UsageError as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(found) + "\n")
