"""One training run on exports: `python -m weavegen.training.tune PLAN.json`. Needs TRL (the extra `training`).

It is a separate program, so that `accelerate launch` can start it in an environment of its own. TRL trains. This
module prepares the prompts in the same way as the server did when it sampled.
"""

import copy
import importlib.util
import json
import os
import random
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, DataCollatorForSeq2Seq
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

from weavegen.errors import UsageError
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.kernel.context import question_suffix
from weavegen.kernel.window import BORDER, cut, fitted
from weavegen.trace.render import RAN_QUESTION
from weavegen.training.plan import IGNORED, TunePlan

Row = dict[str, Any]


def tune(plan: TunePlan) -> None:
    """Train with each method in turn, and write the weights (or the adapter), the tokenizer and the losses."""
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and len(plan.methods) > 1:
        raise UsageError("FSDP divides the weights for one trainer: give one --method, and the others to later runs")
    torch.manual_seed(plan.seed)
    words = AutoTokenizer.from_pretrained(plan.model)
    if words.pad_token is None:
        words.pad_token = words.eos_token
    model = AutoModelForCausalLM.from_pretrained(plan.model, **loading(plan))
    if plan.norms:
        for weight in model.parameters():
            weight.requires_grad = weight.ndim == 1
    adapter = LoraConfig(r=plan.lora, lora_alpha=2 * plan.lora, target_modules="all-linear") if plan.lora else None
    losses: dict[str, float] = {}
    for method in plan.methods:
        trainer = TRAINERS[method](plan, model, words, adapter)
        losses[method] = float(trainer.train().training_loss)
        model, adapter = trainer.model, None  # the next method trains the same adapter
        if "ref" in getattr(model, "peft_config", {}):  # of DPO and KTO, which make one each time
            model.delete_adapter("ref")
    if plan.merge:
        model = model.merge_and_unload()
    for module in list(model.modules()):  # PEFT finds no weights inside the wrappers of fsdp_activation_checkpointing
        for name, child in module.named_children():
            setattr(module, name, getattr(child, "_checkpoint_wrapped_module", child))
    weights = trainer.accelerator.get_state_dict(model)  # under FSDP each process has a part of each weight
    if trainer.args.should_save:  # in the first process alone
        model.save_pretrained(plan.out, state_dict=weights)
        words.save_pretrained(plan.out)
        shutil.rmtree(Path(plan.out) / "checkpoints", ignore_errors=True)
        Path(plan.out, "losses.json").write_text(json.dumps(losses) + "\n")


def loading(plan: TunePlan) -> dict[str, Any]:
    """How the weights are loaded. Raises UsageError."""
    dtype = torch.bfloat16 if plan.bf16_weights or plan.load_in_4bit else torch.float32
    if not plan.load_in_4bit:
        return {"dtype": dtype}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise UsageError("bitsandbytes is missing: pip install bitsandbytes, or leave --load-in-4bit out")
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"dtype": dtype, "quantization_config": how}


def options(plan: TunePlan, method: str) -> dict[str, Any]:
    """The arguments that all TRL configurations share."""
    return {
        "output_dir": str(Path(plan.out) / "checkpoints"),
        "per_device_train_batch_size": plan.batch,
        "num_train_epochs": plan.epochs,
        "learning_rate": plan.rates[method],
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.1,
        "save_strategy": "no",
        "report_to": [],
        "seed": plan.seed,
        "disable_tqdm": True,
        "bf16": plan.bf16 and torch.cuda.is_available(),
        "use_cpu": not torch.cuda.is_available(),
        "logging_steps": 10,
        "gradient_checkpointing": plan.gradient_checkpointing,  # TRL's default is True
    }


def supervised(plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> SFTTrainer:
    """SFT on blocks after their prompts, and on answers after their questions."""
    blocks = rows(plan, "sft", ("prompt", "completion"))
    examples = [example(words, row["prompt"], row["completion"], plan.window) for row in blocks]
    for row in rows(plan, "verifier", ("context", "question", "type", "label"), labels(plan)):
        for question in asked(row):
            prompt = question_suffix(row["context"], question)
            examples.append(example(words, prompt, "Yes" if row["label"] else "No", plan.window))
    random.Random(plan.seed).shuffle(examples)
    return sft_trainer("sft", plan, model, words, adapter, examples)


def whole(method: str, plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> SFTTrainer:
    """SFT on whole traces, in windows one after the other.

    `text`: on all tokens of a trace. `trajectories`: on the recorded tokens that the model sampled; the others are
    read only.
    """
    examples, foreign, letters = [], 0, partial(re.sub, r"\W", "")
    for row in rows(plan, method, ("tokens", "masks", "messages") if method == "trajectories" else ("text",)):
        ids = row["tokens"] if method == "trajectories" else words(row["text"])["input_ids"]
        labels = row["masks"] if method == "trajectories" else ids
        # Recorded ids must spell the last message. Whitespace is cut off its end, and control characters are replaced.
        if method == "trajectories" and letters(row["messages"][-1]["content"])[-20:] not in letters(words.decode(ids)):
            foreign += 1
            continue
        for start in range(0, len(ids), plan.window):
            part, wanted = ids[start : start + plan.window], labels[start : start + plan.window]
            if any(label != IGNORED for label in wanted):
                examples.append(numbers(input_ids=part, labels=wanted))
    if foreign:
        sys.stderr.write(f"weavegen: {foreign} conversations are left out: their token ids are another tokenizer's\n")
    return sft_trainer(method, plan, model, words, adapter, examples)


def sft_trainer(
    method: str, plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None, examples: list[Row]
) -> SFTTrainer:
    """A trainer on examples that have token ids and labels."""
    if not examples:
        raise UsageError(f"{plan.data} has nothing to train on: enqueue more traces, or widen --where")
    return SFTTrainer(
        model=model,
        args=SFTConfig(
            **options(plan, method),
            dataset_kwargs={"skip_prepare_dataset": True},
            max_length=None,
            train_sampling_strategy="group_by_length",  # without it up to a quarter of a batch is padding
        ),
        train_dataset=Dataset.from_list(examples),
        data_collator=DataCollatorForSeq2Seq(words, label_pad_token_id=IGNORED, pad_to_multiple_of=plan.multiple_of),
        processing_class=words,
        peft_config=adapter,
    )


def labels(plan: TunePlan) -> list[int]:
    """Numbers of rows of the export `verifier`. `plan.replay` says how many are answers that the model drew itself.

    With `plan.balance` the others have equal numbers of yes and no for each question.
    """
    every = shuffled(plan, "verifier")
    columns = ["source", "question", "label"]
    about = [row for file in files(plan, "verifier") for row in pq.read_table(file, columns=columns).to_pylist()]
    drawn = [number for number in every if about[number]["source"] == "drawn"]
    table = [number for number in every if about[number]["source"] != "drawn"]
    if plan.balance:
        sides: dict[tuple[str, bool], list[int]] = {}
        for number in table:
            sides.setdefault((about[number]["question"], about[number]["label"]), []).append(number)
        fewer = {key: min(len(own), len(sides.get((key[0], not key[1]), []))) for key, own in sides.items()}
        table = [number for key, own in sides.items() for number in own[: fewer[key]]]
    table += drawn[: round(plan.replay * len(table))]
    random.Random(plan.seed).shuffle(table)
    return table[: plan.most]


def asked(row: Row) -> list[str]:
    """The questions that a label answers: its own and, about whether an action runs, also the evaluator's wording."""
    return [row["question"]] + [WILL_RUN] * (row["question"] == RAN_QUESTION and row["type"] == "action")


def example(words: Any, prompt: str, completion: str, window: int) -> Row:
    """Token ids with labels for the completion. A long prompt is cut between blocks."""
    last = words(completion, add_special_tokens=False)["input_ids"]
    shown = shortened(words, prompt, window - min(len(last), window // 2))
    return numbers(input_ids=(shown + last)[:window], labels=([IGNORED] * len(shown) + last)[:window])


def numbers(**ids: list[int]) -> Row:
    """Token ids in arrays: in lists they would take ten times the memory."""
    return {name: np.array(value, np.int32) for name, value in ids.items()}


def shortened(words: Any, prompt: str, room: int) -> list[int]:
    """The prompt's tokens with exactly one BOS token, at most `room`. A long prompt loses its oldest blocks.

    A tokenizer with the token BORDER is that of nano, whose server cuts in the same way.
    """
    border = words.convert_tokens_to_ids(BORDER)
    begins = words.bos_token is not None and prompt.startswith(words.bos_token)
    ids: list[int] = words(prompt, add_special_tokens=not begins)["input_ids"]
    if border != words.unk_token_id:
        return cut(ids, room, border)
    if len(ids) <= room:
        return ids
    special: list[int] = ids[:1] if begins else words("")["input_ids"]
    prompt = prompt.removeprefix(words.bos_token or "")
    return special + fitted(prompt, room - len(special), lambda text: words(text, add_special_tokens=False).input_ids)


COMPARED: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "dpo": (DPOTrainer, DPOConfig, ("chosen", "rejected")),
    "kto": (KTOTrainer, KTOConfig, ("completion",)),
}
"""DPO on pairs of a better and a worse candidate, KTO on single ones, good or bad; the columns with completions."""


def compared(method: str, plan: TunePlan, model: Any, words: Any, adapter: LoraConfig | None) -> Any:
    """A TRL trainer on token ids.

    TRL itself would tokenise a prompt and its completion as one text, in which tokens merge where the model began to
    write, and would append an EOS token, which follows no completion. For the reference it would load the weights from
    the model's folder again, without what an earlier method has trained.
    """
    trainer, config, completions = COMPARED[method]
    columns = ("prompt", *completions, *["label"] * (method == "kto"))
    examples = [tokens(words, row, plan.window, *completions) for row in rows(plan, method, columns)]
    for at, example in enumerate(examples if method == "kto" else ()):
        # For the KL term: the completion of the row before; of a batch's first row that of its last one, as in TRL.
        before = at - 1 if at % plan.batch else min(at + plan.batch, len(examples)) - 1
        example["KL_completion_ids"] = examples[before]["completion_ids"]
    fixed: Any = None
    if adapter is None and not isinstance(model, PeftModel):  # of an adapter, the trainer keeps a copy
        fixed = copy.deepcopy(model).eval()
        vars(fixed).pop("forward", None)  # an earlier trainer's, which asks `model`
    args = config(**options(plan, method), beta=plan.beta, max_length=plan.window, pad_to_multiple_of=plan.multiple_of)
    own = type(trainer.__name__, (trainer,), {"_prepare_dataset": lambda self, dataset, *more: dataset})
    data = Dataset.from_list(examples)
    return own(model=model, ref_model=fixed, args=args, train_dataset=data, processing_class=words, peft_config=adapter)


def tokens(words: Any, row: Row, window: int, *completions: str) -> Row:
    """Token ids of a prompt and its completions, and a label. The prompt is cut to leave room for each completion."""
    ids = {f"{name}_ids": words(row[name], add_special_tokens=False)["input_ids"] for name in completions}
    shown = shortened(words, row["prompt"], window - min(max(map(len, ids.values())), window // 2))
    return numbers(prompt_ids=shown, **ids) | ({"label": row["label"]} if "label" in row else {})


def rows(plan: TunePlan, format: str, columns: Sequence[str], numbers: list[int] | None = None) -> Iterator[Row]:
    """The rows of an export with these numbers, in their order; by default of at most `plan.most` random ones."""
    wanted = shuffled(plan, format)[: plan.most] if numbers is None else numbers
    found: dict[int, Any] = dict.fromkeys(wanted)
    before = 0
    for file in files(plan, format):
        for batch in pq.ParquetFile(file).iter_batches(256, columns=columns):
            here = [number for number in range(before, before + batch.num_rows) if number in found]
            taken = batch.take(np.array(here, np.int64) - before)  # in Arrow's form, a tenth of Python's
            found |= {number: taken.slice(at, 1) for at, number in enumerate(here)}
            before += batch.num_rows
    return (row for number in wanted for row in found[number].to_pylist())


def shuffled(plan: TunePlan, format: str) -> list[int]:
    """The numbers of an export's rows, in a random order."""
    numbers = list(range(sum(pq.read_metadata(file).num_rows for file in files(plan, format))))
    random.Random(plan.seed).shuffle(numbers)
    return numbers


def files(plan: TunePlan, format: str) -> list[Path]:
    """The files of an export; none if it has no rows."""
    return sorted((Path(plan.data) / format / "data").glob("*.parquet"))


TRAINERS: dict[str, Callable[..., Any]] = {
    "sft": supervised,
    **{name: partial(compared, name) for name in COMPARED},
    **{name: partial(whole, name) for name in ("text", "trajectories")},
}


def use_one_gpu() -> None:
    """Hide all GPUs but the first from this process, which TRL asks for. A launcher gives each process its own."""
    if "LOCAL_RANK" not in os.environ:
        if torch.cuda.device_count() > 1:
            sys.stderr.write('weavegen: training uses the first GPU: --launch "accelerate launch" uses all\n')
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]


def end_with_parent() -> None:
    """End this program as soon as its standard input does, which is a pipe from the program that started it."""
    while os.read(0, 1):  # without a buffer: the interpreter could not end while a thread held the buffer's lock
        pass
    os._exit(1)


if __name__ == "__main__":
    if "--tied" in sys.argv:
        threading.Thread(target=end_with_parent, daemon=True).start()
    use_one_gpu()
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=TunePlan)
    try:
        tune(plan)
    except UsageError as error:
        sys.stderr.write(f"weavegen: {error}\n")
        sys.exit(2)
