"""Trains a Llama of a few million parameters on a file of `pretraining.prepare`. Needs PyTorch (the extra `training`).

    python -m pretraining.pretrain FILE.npz FOLDER

`make weights` runs this program. It uses a GPU if there is one, in bfloat16, and otherwise the CPU.
"""

import json
import logging
import math
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pretraining.prepare import ASKED, Plan, Prepared, load
from pretraining.sequences import Ids, TokenSequence
from pretraining.tokenizer import BEGIN
from weavegen import chat_template
from weavegen.training.plan import IGNORED
from weavegen_nano import TRAINING, WEIGHTS
from weavegen_nano.texts import END

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WARM_UP = 0.05
"""Share of a phase's steps in which the learning rate rises."""
REPORTED = 100
"""Steps between two reports."""


def pretrain(data: Prepared, folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    """Train a model, and write it with its tokenizer to `folder`.

    The format is Hugging Face's, with weights in float16. Returns the loss on validation traces in nats, and for each
    task the share of ticks in which all digits of orientation and action are right.
    """
    plan, words = data.plan, data.tokenizer
    torch.manual_seed(plan.seed)
    model = LlamaForCausalLM(llama_config(words, plan)).to(DEVICE)
    say(f"{model.num_parameters():,} parameters")
    chance = np.random.default_rng(plan.seed)
    train(model, batches(data.close_ups, plan.batch * 4, chance), plan, say)
    measures = measured(model, data)
    say(f"after the close-ups: {measures}")
    train(model, [data.windows[at : at + plan.batch] for at in range(0, len(data.windows), plan.batch)], plan, say)
    measures = measured(model, data)
    write(model, words, plan, folder)
    return measures


def batches(some: Sequence[TokenSequence], count: int, chance: np.random.Generator) -> list[Sequence[TokenSequence]]:
    """Sequences of similar lengths in each batch, so that little is padded; the batches in a random order."""
    order = sorted(chance.permutation(len(some)).tolist(), key=lambda number: len(some[number][0]))
    parts = [[some[number] for number in order[at : at + count]] for at in range(0, len(order), count)]
    return [parts[number] for number in chance.permutation(len(parts))]


def train(
    model: LlamaForCausalLM, steps: Sequence[Sequence[TokenSequence]], plan: Plan, say: Callable[[str], None]
) -> None:
    """One pass over the batches, by Muon for the layers' matrices (Jordan et al. 2024), and AdamW for all else."""
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        (matrices if weight.ndim == 2 and "layers." in name else rest).append(weight)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=plan.muon, weight_decay=plan.decay, momentum=0.95)
        if plan.muon
        else torch.optim.AdamW(matrices, lr=plan.rate, betas=(0.9, 0.95), weight_decay=plan.decay),
        torch.optim.AdamW(rest, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    warm = max(1, round(WARM_UP * len(steps)))

    def factor(step: int) -> float:
        return min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0, step - warm) / max(1, len(steps) - warm))))

    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, factor) for optimizer in optimizers]
    model.train()
    total, counted, began = torch.zeros((), device=DEVICE), 0, time.monotonic()
    for number, batch in enumerate(steps, 1):
        total += (loss := losses(model, batch)[0]).detach()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        for schedule in schedules:
            schedule.step()
        counted += 1
        if counted == REPORTED or number == len(steps):
            say(f"step {number:,} of {len(steps):,}, {time.monotonic() - began:.0f} s: {float(total) / counted:.4f}")
            total.zero_()
            counted = 0


def losses(model: LlamaForCausalLM, batch: Sequence[TokenSequence]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The taught tokens' mean loss in nats; these tokens; whether each is the likeliest. Shapes (), (n,), (n,)."""
    length = max(len(ids) for ids, _ in batch)
    ids = filled([ids for ids, _ in batch], length, 0)
    labels = filled([labels for _, labels in batch], length, IGNORED)[:, 1:]
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=DEVICE.type == "cuda"):  # see TunePlan.bf16
        states = model.model(input_ids=ids).last_hidden_state[:, :-1]
        logits = model.lm_head(states[labels != IGNORED])  # of these positions only, which are a third
    wanted = labels[labels != IGNORED]
    return torch.nn.functional.cross_entropy(logits.float(), wanted), wanted, logits.argmax(-1) == wanted


def filled(rows: Sequence[Ids], length: int, empty: int) -> torch.Tensor:
    """Rows of one length, shape (rows, length)."""
    padded = [np.pad(row, (0, length - len(row)), constant_values=empty) for row in rows]
    return torch.from_numpy(np.stack(padded)).to(DEVICE, torch.long)


def measured(model: LlamaForCausalLM, data: Prepared) -> dict[str, float]:
    """See `pretrain`."""
    model.eval()
    with torch.no_grad():
        return {"loss": mean_loss(model, data.validation)} | {
            task: right_digits(model, data, number) for number, task in enumerate(data.plan.drills)
        }


def mean_loss(model: LlamaForCausalLM, windows: Sequence[TokenSequence]) -> float:
    """The mean loss of all taught tokens in nats."""
    total, count = 0.0, 0
    for window in windows:
        loss, wanted, _ = losses(model, [window])
        if len(wanted):
            total, count = total + float(loss) * len(wanted), count + len(wanted)
    return total / count


def right_digits(model: LlamaForCausalLM, data: Prepared, task: int) -> float:
    """The share of a task's ticks in which each digit is the likeliest token, given the right text before it."""
    words = data.tokenizer
    digits = [number for number in range(words.get_vocab_size()) if words.decode([number]).strip().isdigit()]
    right = 0
    for tick in data.asked[task * ASKED : (task + 1) * ASKED]:
        _, wanted, hits = losses(model, [tick])
        right += bool(hits[torch.isin(wanted, torch.tensor(digits, device=DEVICE))].all())
    return right / ASKED


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
    model.half().save_pretrained(folder)
    wrapped(words, plan).save_pretrained(folder)
    shutil.copy(WEIGHTS / chat_template.FILE, folder)  # the tokenizer leaves out the instruction in this form only
    about = {"tasks": sorted(plan.drills)} | asdict(plan)  # nano tells clients the tasks
    (folder / TRAINING).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    found = pretrain(load(Path(sys.argv[1])), Path(sys.argv[2]), lambda line: logging.warning("%s", line))
    sys.stdout.write(json.dumps(found) + "\n")
