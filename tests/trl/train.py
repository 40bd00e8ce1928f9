"""One training step on an export, by TRL's own trainers on the CPU.

Run by the interpreter of TRL's environment (scripts/trl.sh), which has torch, transformers, trl and datasets:

    train.py TRAINER FOLDER MODEL     TRAINER: sft, text, dpo, kto; FOLDER: an export;
                                      MODEL: by scripts/tiny_model.py

Writes JSON: rows of the data set, columns, the loss of the step, whether the weights have changed.
"""

import json
import logging
import sys
import tempfile
import warnings
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

ROWS = {"kto": 2}
"""Rows in a batch, by trainer; 1 for others. KTO compares rows of a batch."""


def trainer_of(name: str) -> tuple[Any, Any, dict[str, Any]]:
    """A trainer class, its configuration class, and their required arguments."""
    import trl

    if name in ("sft", "text"):
        return trl.SFTTrainer, trl.SFTConfig, {}
    if name == "dpo":
        return trl.DPOTrainer, trl.DPOConfig, {}
    try:
        return trl.KTOTrainer, trl.KTOConfig, {}
    except AttributeError:  # its module differs between TRL's versions
        from trl.experimental.kto import KTOConfig, KTOTrainer

        return KTOTrainer, KTOConfig, {}


def main(name: str, folder: str, model_folder: str) -> None:
    data = load_dataset(folder, split="train")
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    before = model.lm_head.weight.detach().clone()
    trainer_class, config_class, options = trainer_of(name)
    with tempfile.TemporaryDirectory() as out:
        config = config_class(
            output_dir=out,
            max_steps=1,
            per_device_train_batch_size=ROWS.get(name, 1),
            learning_rate=1e-3,
            max_length=None,
            use_cpu=True,
            bf16=False,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            **options,
        )
        trainer = trainer_class(
            model=model, args=config, train_dataset=data.select(range(min(8, len(data)))), processing_class=tokenizer
        )
        done = trainer.train()
    changed = bool((model.lm_head.weight.detach() != before).any())
    json.dump(
        {"rows": len(data), "columns": data.column_names, "loss": done.training_loss, "changed": changed}, sys.stdout
    )


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    main(*sys.argv[1:])
