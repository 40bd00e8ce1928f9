"""One training run on exports: `python -m weavegen.training.tune PLAN.json`. Needs TRL (the extra `training`).

A program of its own, so that it can be started by `accelerate launch`, in another environment than the rest of
weavegen. TRL trains; what is done here is to show each prompt as the server that sampled showed it.
"""

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

from weavegen.errors import UsageError
from weavegen.kernel.context import question_suffix
from weavegen.nano.llama import Ids
from weavegen.nano.texts import BORDER, cut
from weavegen.training.plan import IGNORED, TunePlan

Row = dict[str, Any]


def tune(plan: TunePlan) -> dict[str, float]:
    """Train by each method in turn, and write weights, or an adapter, and the tokenizer. Returns the losses."""
    torch.manual_seed(plan.seed)
    words = AutoTokenizer.from_pretrained(plan.model)
    if words.pad_token is None:
        words.pad_token = words.eos_token
    model = AutoModelForCausalLM.from_pretrained(plan.model, dtype=torch.float32)
    if plan.norms:
        for weight in model.parameters():
            weight.requires_grad = weight.ndim == 1
    adapter = LoraConfig(r=plan.lora, lora_alpha=2 * plan.lora, target_modules="all-linear") if plan.lora else None
    losses: dict[str, float] = {}
    for method in plan.methods:
        trainer = TRAINERS[method](plan, model, words, adapter)
        losses[method] = float(trainer.train().training_loss)
        model, adapter = trainer.model, None  # the next method goes on with the same adapter
    model.save_pretrained(plan.out)
    words.save_pretrained(plan.out)
    shutil.rmtree(Path(plan.out) / "checkpoints", ignore_errors=True)
    return losses


def options(plan: TunePlan, method: str) -> dict[str, Any]:
    """What TRL's configurations have in common."""
    return {
        "output_dir": str(Path(plan.out) / "checkpoints"),
        "per_device_train_batch_size": plan.batch,
        "num_train_epochs": plan.epochs,
        "learning_rate": plan.rates[method],
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "bf16": plan.bf16,
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": 10,
        "save_strategy": "no",
        "report_to": [],
        "seed": plan.seed,
        "disable_tqdm": True,
        **({"gradient_checkpointing": True} if plan.gradient_checkpointing else {}),
    }


def supervised(plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> SFTTrainer:
    """Blocks that were kept behind what the model read, and answers behind the questions."""
    found = [*written(plan, words), *answered(plan, words)]
    random.Random(plan.seed).shuffle(found)
    if not found:
        raise UsageError(f"{plan.data} has nothing to train on: enqueue more traces, or widen --where")
    return SFTTrainer(
        model=model,
        args=SFTConfig(
            **options(plan, "sft"),
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
            train_sampling_strategy="group_by_length",  # else a quarter of it may be padding
        ),
        train_dataset=Dataset.from_list(found),
        data_collator=DataCollatorForSeq2Seq(
            words, label_pad_token_id=IGNORED, pad_to_multiple_of=plan.multiple_of
        ),
        processing_class=words,
        peft_config=adapter,
    )


def written(plan: TunePlan, words: Any) -> Iterator[Row]:
    """Of the export `sft`: tokens of prompt and completion, with labels for the completion."""
    for row in rows(plan, "sft"):
        yield example(words, row["prompt"], row["completion"], plan.window)


def answered(plan: TunePlan, words: Any) -> Iterator[Row]:
    """Of the export `verifier`: a question about a block, and the answer that is known."""
    for row in rows(plan, "verifier"):
        yield example(
            words, question_suffix(row["context"], row["question"]), "Yes" if row["label"] else "No", plan.window
        )


def example(words: Any, prompt: str, completion: str, window: int) -> Row:
    """Tokens and labels. A prompt that leaves no room is cut as nano cuts it: the last blocks are whole."""
    last = words(completion, add_special_tokens=False)["input_ids"]
    shown = shortened(words, prompt, window - min(len(last), window // 2)).tolist()
    ids = (shown + last)[:window]
    return {"input_ids": ids, "labels": ([IGNORED] * len(shown) + last)[:window], "attention_mask": [1] * len(ids)}


def shortened(words: Any, prompt: str, room: int) -> Ids:
    """A prompt's tokens, of a long one the first and the last blocks."""
    border = words.convert_tokens_to_ids(BORDER)
    return cut(tokens(words, prompt), room, None if border == words.unk_token_id else border)


def tokens(words: Any, prompt: str) -> list[int]:
    """With the token that begins a text, once."""
    begins = words.bos_token is not None and prompt.startswith(words.bos_token)
    found: list[int] = words(prompt, add_special_tokens=not begins)["input_ids"]
    return found


def preferred(plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> DPOTrainer:
    """Pairs of candidates: the better one, and the worse."""
    found = [texts(words, row, plan.window, "chosen", "rejected") for row in rows(plan, "dpo")]
    args = DPOConfig(**options(plan, "dpo"), beta=plan.beta, max_length=plan.window)
    return of_texts(DPOTrainer, args, found, model, words, adapter)


def judged(plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> KTOTrainer:
    """Candidates, each by itself good or bad."""
    found = [texts(words, row, plan.window, "completion") | {"label": row["label"]} for row in rows(plan, "kto")]
    args = KTOConfig(**options(plan, "kto"), beta=plan.beta, max_length=plan.window)
    return of_texts(KTOTrainer, args, found, model, words, adapter)


def of_texts(trainer: Any, args: Any, found: list[Row], model: Any, words: Any, adapter: LoraConfig | None) -> Any:
    """A trainer of TRL's that tokenises what it is given."""
    return trainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(found),
        processing_class=words,
        peft_config=adapter,
    )


def texts(words: Any, row: Row, window: int, *completions: str) -> Row:
    """A prompt as text that is short enough for each of its completions: what TRL tokenises by itself."""
    longest = max(len(words(row[name], add_special_tokens=False)["input_ids"]) for name in completions) + 1
    shown = shortened(words, row["prompt"], window - min(longest, window // 2))
    text = words.decode(shown[shown != words.bos_token_id])
    return {"prompt": text} | {name: row[name] for name in completions}


def rows(plan: TunePlan, format: str) -> Iterator[Row]:
    """Of an export, at most as many as are wanted."""
    files = sorted((Path(plan.data) / format / "data").glob("*.parquet"))
    found = [row for file in files for row in pq.read_table(file).to_pylist()]
    random.Random(plan.seed).shuffle(found)
    yield from found[: plan.most]


TRAINERS: dict[str, Callable[..., Any]] = {"sft": supervised, "dpo": preferred, "kto": judged}


if __name__ == "__main__":
    told = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=TunePlan)
    try:
        measured = tune(told)
    except UsageError as error:
        sys.exit(str(error))
    Path(told.out, "losses.json").write_text(json.dumps(measured) + "\n")
