"""A tiny Llama with random weights, and a reference implementation in float64, token by token."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from weavegen.kernel.window import BORDER

TEXT = "def move(cell):\n    return cell\n#startblock type: action\nIs it so? Yes. No. It is, and it is not.\n" * 20
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
}
TARGETS = ("q_proj", "down_proj")
"""The matrices that an adapter changes."""
MAX_DIFFERENCE = 2e-4
"""Largest difference of a logprob between float32 and float64, of logits up to about 20."""
Weights = dict[str, np.ndarray[Any, np.dtype[Any]]]


def make_tokenizer() -> Tokenizer:
    """A byte-level tokenizer that puts `<s>` before a text and has a token for the border between blocks."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_tokens([AddedToken(BORDER, special=False, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def make_weights(config: dict[str, Any], seed: int) -> Weights:
    chance = np.random.default_rng(seed)
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = width // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    for number in range(config["num_hidden_layers"]):
        for name, shape in {
            "self_attn.q_proj": (queries, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, queries),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }.items():
            shapes[f"model.layers.{number}.{name}.weight"] = shape
    return {
        name: (chance.standard_normal(shape) * 0.4 + (1.0 if len(shape) == 1 else 0.0)).astype(np.float32)
        for name, shape in shapes.items()
    }


def make(folder: Path, *, seed: int = 0, **changed: Any) -> Path:
    """Write a model and its tokenizer. `changed` replaces entries of `CONFIG`."""
    folder.mkdir(exist_ok=True)
    tokenizer = make_tokenizer()
    config = CONFIG | {"vocab_size": tokenizer.get_vocab_size()} | changed
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps(config))
    save_file(make_weights(config, seed), str(folder / "model.safetensors"))
    return folder


def make_adapter(folder: Path, model: Path, *, rank: int = 2, **changed: Any) -> Path:
    """Write an adapter with random weights in PEFT's format. `changed` replaces entries of its configuration."""
    folder.mkdir()
    chance = np.random.default_rng(7)
    arrays = {}
    for name, weight in load_file(model / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if stem.endswith(TARGETS):
            for part, shape in {"A": (rank, weight.shape[1]), "B": (weight.shape[0], rank)}.items():
                values = (chance.standard_normal(shape) * 0.3).astype(np.float32)
                arrays[f"base_model.model.{stem}.lora_{part}.weight"] = values
    save_file(arrays, str(folder / "adapter_model.safetensors"))
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": TARGETS, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"use_dora": False} | changed))
    return folder


class Reference:
    """The same model, computed directly from its equations: one token, one head and one position at a time."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        weights = make_weights(self.config, seed)
        self.weights = {name: array.astype(np.float64) for name, array in weights.items()}

    def logprobs(self, ids: list[int]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
        """Logprobs of all tokens after each of `ids`: an array of (len(ids), vocabulary)."""
        config, weights = self.config, self.weights
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        size = config["hidden_size"] // heads
        past: list[tuple[list[Any], list[Any]]] = [([], []) for _ in range(config["num_hidden_layers"])]
        rows = []
        for position, token in enumerate(ids):
            x = weights["model.embed_tokens.weight"][token]
            for number, (keys, values) in enumerate(past):
                layer = f"model.layers.{number}."
                y = self._norm(x, layer + "input_layernorm.weight")
                q = (weights[layer + "self_attn.q_proj.weight"] @ y).reshape(heads, size)
                k = (weights[layer + "self_attn.k_proj.weight"] @ y).reshape(shared, size)
                v = (weights[layer + "self_attn.v_proj.weight"] @ y).reshape(shared, size)
                keys.append([self._rotate(row, position) for row in k])
                values.append(v)
                seen = []
                for head in range(heads):
                    group = head // (heads // shared)
                    turned = self._rotate(q[head], position)
                    scores = np.array([turned @ key[group] for key in keys]) / np.sqrt(size)
                    weight = np.exp(scores - scores.max())
                    seen.append(sum(w * value[group] for w, value in zip(weight / weight.sum(), values, strict=True)))
                x = x + weights[layer + "self_attn.o_proj.weight"] @ np.concatenate(seen)
                y = self._norm(x, layer + "post_attention_layernorm.weight")
                gate = weights[layer + "mlp.gate_proj.weight"] @ y
                up = weights[layer + "mlp.up_proj.weight"] @ y
                x = x + weights[layer + "mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)
            last = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
            logits = weights[last] @ self._norm(x, "model.norm.weight")
            rows.append(logits - logits.max() - np.log(np.exp(logits - logits.max()).sum()))
        return rows

    def _norm(self, x: Any, name: str) -> Any:
        return x / np.sqrt((x**2).mean() + self.config["rms_norm_eps"]) * self.weights[name]

    def _rotate(self, row: Any, position: int) -> Any:
        """Pairs (i, i + half) rotated by position x theta^(-2i/size)."""
        half = len(row) // 2
        turned = np.empty_like(row)
        for i in range(half):
            angle = position * self.config["rope_theta"] ** (-2 * i / len(row))
            cos, sin = np.cos(angle), np.sin(angle)
            turned[i] = row[i] * cos - row[i + half] * sin
            turned[i + half] = row[i + half] * cos + row[i] * sin
        return turned
