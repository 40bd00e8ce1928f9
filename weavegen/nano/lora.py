"""Merges LoRA adapters (arXiv:2106.09685), as PEFT writes them, into a model's weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from weavegen.errors import UsageError

PREFIX = "base_model.model."
CONFIG = "adapter_config.json"


def merged(weights: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the weights with an adapter merged: W + B A alpha / r. Raises UsageError if it does not fit."""
    file = folder / CONFIG
    try:
        config = json.loads(file.read_text())
        rank, alpha = config["r"], config["lora_alpha"]
        matrices = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UsageError(f"{folder}: {error}: give a folder with a LoRA adapter as PEFT writes it") from None
    strange = [
        name for name in ("use_dora", "bias", "modules_to_save") if config.get(name) not in (None, False, "none")
    ]
    if config.get("peft_type") != "LORA" or strange:
        raise UsageError(f"{file}: {', '.join(strange) or config.get('peft_type')}: only plain LoRA is served")
    scale = np.float32(alpha / (rank**0.5 if config.get("use_rslora") else rank))
    changed = dict(weights)
    for name, a in matrices.items():
        if not name.endswith(".lora_A.weight"):
            continue
        b = matrices[name.replace(".lora_A.", ".lora_B.")]
        target = name.removeprefix(PREFIX).replace(".lora_A.", ".")
        if target not in weights or weights[target].shape != (b.shape[0], a.shape[1]):
            raise UsageError(
                f"{folder}: {target} is not in the model, or has another size: "
                "load the adapter into the model that it was trained for"
            )
        change = scale * (b.astype(np.float32) @ a.astype(np.float32))
        changed[target] = weights[target].astype(np.float32) + change
    return changed
