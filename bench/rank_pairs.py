"""Which text of a preference pair a model finds likelier. Run by the interpreter of scripts/trl.sh:

    python -m bench.rank_pairs MODEL DATA     MODEL: a folder of a model or of an adapter; DATA: a folder with dpo/

Writes JSON: for each pair, whether the better text's tokens are likelier, by the mean of their log probabilities.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from weavegen.training.plan import TunePlan
from weavegen.training.tune import rows, tokens

WINDOW = 1024
"""Tokens of a prompt and a text together, at most."""


def mean_log_probability(model: Any, before: list[int], after: list[int]) -> float:
    """The mean log probability of the tokens `after` those of a prompt, in nats."""
    ids = torch.tensor([before + after])
    with torch.inference_mode():
        logits = model(input_ids=ids, logits_to_keep=len(after) + 1).logits[0, :-1].float()
    found = torch.log_softmax(logits, -1).gather(1, ids[0, -len(after) :, None])
    return float(found.mean())


def main(model_folder: str, data: str) -> None:
    adapter = (Path(model_folder) / "adapter_config.json").exists()
    loader = AutoPeftModelForCausalLM if adapter else AutoModelForCausalLM
    model = loader.from_pretrained(model_folder, dtype=torch.float32).eval()
    words = AutoTokenizer.from_pretrained(model_folder)
    found = rows(TunePlan(model="", data=data, out=""), "dpo", ("prompt", "chosen", "rejected"))
    pairs = [tokens(words, row, WINDOW, "chosen", "rejected") for row in found]
    right = [
        mean_log_probability(model, pair["prompt_ids"], pair["chosen_ids"])
        > mean_log_probability(model, pair["prompt_ids"], pair["rejected_ids"])
        for pair in pairs
    ]
    json.dump(right, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
