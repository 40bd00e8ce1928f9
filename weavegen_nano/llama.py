"""The forward pass of a Llama in NumPy, from token ids and cached keys and values to logits, in float32.

The architecture is `LlamaForCausalLM` of Hugging Face's transformers: RMS norm before each part, rotary positions
(arXiv:2104.09864), grouped queries (arXiv:2305.13245), a SwiGLU feed-forward part (arXiv:2002.05202); no biases.
LoRA adapters (arXiv:2106.09685), as PEFT writes them, are merged into the weights.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from weavegen.errors import UsageError

ADAPTER_CONFIG = "adapter_config.json"
"""The file that makes a folder a LoRA adapter."""
ADAPTER_PREFIX = "base_model.model."
"""Beginning of the weights' names in an adapter."""
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Ids: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Attend: TypeAlias = Callable[[int, Floats, Floats, Floats], Floats]
"""Attention: (layer, queries, keys, values) -> result.

Shapes: queries and result (rows, key-value heads, queries per head, head); keys and values (rows, key-value heads,
head). Queries may be fewer than keys: those of the last rows. The function stores what later rows need.
"""


@dataclass(frozen=True)
class Shape:
    """The sizes in config.json."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    """Size of a head's queries, keys and values."""
    vocabulary: int
    length: int
    """Maximum tokens of a prompt and its continuation together."""
    theta: float
    """Base of the rotary frequencies."""
    epsilon: float
    tied: bool
    """Whether the embedding matrix is also the output layer."""


@dataclass(frozen=True)
class _Layer:
    """Matrices (inputs, outputs). Those that follow a norm contain its weights."""

    qkv: Floats
    """(width, all heads of queries, keys and values). The queries' weights are divided by sqrt(head)."""
    out: Floats
    gate_up: Floats
    """The gate is negative, which saves a negation in each step; `down` is negative, too."""
    down: Floats


class Llama:
    """The weights. They never change, so threads may share an instance."""

    def __init__(self, folder: Path, adapter: Path | None = None) -> None:
        """Read config.json and model.safetensors, and a LoRA adapter. Raises UsageError if a file is invalid."""
        self.shape = shape = read_shape(folder / "config.json")
        try:
            weights = {name: _float32(name, array) for name, array in load_file(folder / "model.safetensors").items()}
            if adapter is not None:
                weights = with_adapter(weights, adapter)
            self.parameters = sum(array.size for array in weights.values())
            self._embedding = weights["model.embed_tokens.weight"]
            last = self._embedding if shape.tied else weights["lm_head.weight"]
            self._last = np.ascontiguousarray((last * weights["model.norm.weight"]).T)
            self._layers = [_layer(weights, f"model.layers.{number}.", shape) for number in range(shape.layers)]
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{folder}: its weights can't be read: {error}") from None
        except KeyError as error:
            raise UsageError(f"{folder}: model.safetensors lacks {error}, which a Llama needs") from None
        half = np.arange(0, shape.head, 2, dtype=np.float64) / shape.head
        self._frequencies = shape.theta**-half

    def forward(self, ids: Ids, positions: Ids, attend: Attend, *, last: bool = False) -> Floats:
        """Return (rows, width): the last hidden state of each of `ids`, which stand at `positions`.

        `last`: only of the last one, (1, width). The last layer then asks `attend` for one query.
        """
        shape, rows = self.shape, len(ids)
        turns = np.exp(1j * positions[:, None, None] * self._frequencies).astype(np.complex64)  # (rows, 1, head / 2)
        queries, turned = shape.heads, shape.heads + shape.kv_heads
        hidden = self._embedding[ids]
        with np.errstate(over="ignore"):  # exp may be infinite: the quotient is then 0, which is correct
            for number, layer in enumerate(self._layers):
                qkv = (self._normed(hidden) @ layer.qkv).reshape(rows, -1, shape.head)
                qkv[:, :turned].view(np.complex64)[...] *= turns
                if last and number == shape.layers - 1:
                    hidden, rows = hidden[-1:], 1
                q = qkv[-rows:, :queries].reshape(rows, shape.kv_heads, -1, shape.head)
                seen = attend(number, q, qkv[:, queries:turned], qkv[:, turned:])
                hidden = hidden + seen.reshape(rows, -1) @ layer.out
                gate_up = self._normed(hidden) @ layer.gate_up
                gate, up = gate_up[:, : len(layer.down)], gate_up[:, len(layer.down) :]
                up *= gate
                np.exp(gate, out=gate)
                gate += 1
                up /= gate
                hidden += up @ layer.down
        return hidden

    def logits(self, hidden: Floats) -> Floats:
        """Return (rows, vocabulary): the logits of the token after each row."""
        logits: Floats = self._normed(hidden) @ self._last
        return logits

    def _normed(self, hidden: Floats) -> Floats:
        """The norm without its weights, which are in the matrix that follows."""
        square = np.einsum("ij,ij->i", hidden, hidden)[:, None]
        square *= np.float32(1 / self.shape.width)
        square += np.float32(self.shape.epsilon)
        normed: Floats = hidden / np.sqrt(square, out=square)
        return normed


def _layer(weights: dict[str, Floats], prefix: str, shape: Shape) -> _Layer:
    attention, feed = prefix + "self_attn.", prefix + "mlp."
    q = _paired(weights[attention + "q_proj.weight"], shape) * np.float32(shape.head**-0.5)
    k = _paired(weights[attention + "k_proj.weight"], shape)
    gate_up = [-weights[feed + "gate_proj.weight"], weights[feed + "up_proj.weight"]]
    before, after = weights[prefix + "input_layernorm.weight"], weights[prefix + "post_attention_layernorm.weight"]
    return _Layer(
        qkv=np.ascontiguousarray((np.concatenate([q, k, weights[attention + "v_proj.weight"]]) * before).T),
        out=np.ascontiguousarray(weights[attention + "o_proj.weight"].T),
        gate_up=np.ascontiguousarray((np.concatenate(gate_up) * after).T),
        down=np.ascontiguousarray(-weights[feed + "down_proj.weight"].T),
    )


def _paired(rows: Floats, shape: Shape) -> Floats:
    """Bring the two numbers that rotary positions turn together, i and i + head / 2, beside each other."""
    return rows.reshape(-1, 2, shape.head // 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def _float32(name: str, array: Any) -> Floats:
    if array.dtype not in (np.float32, np.float16):
        raise UsageError(f"{name} is {array.dtype}: save the model in float32 or float16")
    return np.asarray(array, np.float32)


def with_adapter(weights: dict[str, Floats], folder: Path) -> dict[str, Floats]:
    """Return the weights with an adapter merged: W + B A alpha / r. Raises UsageError if it does not fit."""
    file = folder / ADAPTER_CONFIG
    try:
        config = json.loads(file.read_text())
        rank, alpha = config["r"], config["lora_alpha"]
        matrices = load_file(folder / "adapter_model.safetensors")
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UsageError(f"{folder}: {error}: give a folder with a LoRA adapter as PEFT writes it") from None
    extras = ("use_dora", "bias", "modules_to_save")
    unsupported = [name for name in extras if config.get(name) not in (None, False, "none")]
    if config.get("peft_type") != "LORA" or unsupported:
        raise UsageError(f"{file}: {', '.join(unsupported) or config.get('peft_type')}: only plain LoRA is served")
    scale = np.float32(alpha / (rank**0.5 if config.get("use_rslora") else rank))
    changed = dict(weights)
    for name, a in matrices.items():
        if not name.endswith(".lora_A.weight"):
            continue
        b = matrices[name.replace(".lora_A.", ".lora_B.")]
        target = name.removeprefix(ADAPTER_PREFIX).replace(".lora_A.", ".")
        if target not in weights or weights[target].shape != (b.shape[0], a.shape[1]):
            raise UsageError(
                f"{folder}: {target} is not in the model, or has another size: "
                "load the adapter into the model that it was trained for"
            )
        change = scale * (b.astype(np.float32) @ a.astype(np.float32))
        changed[target] = weights[target].astype(np.float32) + change
    return changed


def read_shape(file: Path) -> Shape:
    """Read the sizes in config.json. Raises UsageError if it is invalid or of another architecture."""
    try:
        config = json.loads(file.read_text())
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        unsupported = {
            "model_type": config["model_type"] != "llama",
            "hidden_act": config.get("hidden_act", "silu") != "silu",
            "attention_bias": config.get("attention_bias", False),
            "mlp_bias": config.get("mlp_bias", False),
            "rope_type": rope.get("rope_type", "default") != "default",
        }
        if names := [name for name, is_set in unsupported.items() if is_set]:
            raise UsageError(f"{file}: {', '.join(names)}: this is not a plain Llama: serve it with vLLM")
        heads = config["num_attention_heads"]
        return Shape(
            layers=config["num_hidden_layers"],
            width=config["hidden_size"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
            length=config["max_position_embeddings"],
            theta=rope.get("rope_theta") or config.get("rope_theta", 10_000.0),
            epsilon=config.get("rms_norm_eps", 1e-6),
            tied=config.get("tie_word_embeddings", False),
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: {error}: give a folder with a model in Hugging Face's format") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: {error}: this is not the configuration of a Llama") from None
