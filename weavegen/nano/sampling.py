"""From logits to tokens, in vLLM's order: repetition penalty, temperature, top-k, top-p, draw. Pure."""

from dataclasses import dataclass

import numpy as np

from weavegen.nano.llama import Floats, Ids

_GREEDY = 1e-5
"""Below this temperature the likeliest token is taken, as vLLM does."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    temperature: float = 1.0
    top_k: int = 0
    """Only among the likeliest so many; 0: among all."""
    top_p: float = 1.0
    """Only among the likeliest that together have this mass."""
    penalty: float = 1.0
    """Divides logits of tokens that were there before if they are positive, else multiplies (arXiv:1909.05858)."""


def logprobs(logits: Floats) -> Floats:
    """The model's own, of every token, row by row: before penalty and temperature."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


def draw(
    logits: Floats, seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]], how: Sampling, chance: Floats
) -> Ids:
    """One token for each row. `seen`: tokens that stand before it; `chance`: a number in [0, 1) for each row."""
    if how.penalty != 1.0:
        logits = np.where(seen, np.where(logits > 0, logits / how.penalty, logits * how.penalty), logits)
    if how.temperature < _GREEDY:
        return np.asarray(np.argmax(logits, axis=-1), np.int64)
    logits = logits / np.float32(how.temperature)
    size = logits.shape[-1]
    if 0 < how.top_k < size:
        least = np.partition(logits, size - how.top_k, axis=-1)[:, size - how.top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
    if how.top_p < 1.0:
        order = np.argsort(-odds, axis=-1, kind="stable")
        mass = np.cumsum(np.take_along_axis(odds, order, -1), axis=-1)
        # Those before which the mass is not yet reached: at least the likeliest.
        beyond = np.concatenate([np.zeros((len(mass), 1)), mass[:, :-1]], axis=-1) >= how.top_p * mass[:, -1:]
        np.put_along_axis(odds, order, np.where(beyond, 0.0, np.take_along_axis(odds, order, -1)), -1)
    mass = np.cumsum(odds, axis=-1)
    return np.asarray((mass <= chance[:, None] * mass[:, -1:]).sum(axis=-1), np.int64)
