"""Samples tokens from logits in vLLM's order: repetition penalty, temperature, top-k, top-p, draw. Pure."""

from dataclasses import dataclass

import numpy as np

from weavegen.nano.llama import Floats, Ids

_GREEDY = 1e-5
"""Below this temperature the likeliest token is taken, as by vLLM."""


@dataclass(frozen=True)
class Sampling:
    """The parameters of sampling."""

    temperature: float = 1.0
    top_k: int = 0
    """Sample from this many of the likeliest tokens; 0: from all."""
    top_p: float = 1.0
    """Sample from the likeliest tokens that together have this probability."""
    penalty: float = 1.0
    """Repetition penalty (arXiv:1909.05858): positive logits of earlier tokens are divided, others multiplied."""


def logprobs(logits: Floats) -> Floats:
    """Return the logprobs of every token, by row, before penalty and temperature."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)


def draw(
    logits: Floats, seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]], parameters: Sampling, chance: Floats
) -> Ids:
    """Sample a token per row. `seen`: which tokens the text has already; `chance`: in [0, 1), per row."""
    if parameters.penalty != 1.0:
        logits = np.where(
            seen, np.where(logits > 0, logits / parameters.penalty, logits * parameters.penalty), logits
        )
    if parameters.temperature < _GREEDY:
        return np.asarray(np.argmax(logits, axis=-1), np.int64)
    logits = logits / np.float32(parameters.temperature)
    size = logits.shape[-1]
    if 0 < parameters.top_k < size:
        least = np.partition(logits, size - parameters.top_k, axis=-1)[:, size - parameters.top_k, None]
        logits = np.where(logits < least, -np.inf, logits)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True), dtype=np.float64)
    if parameters.top_p < 1.0:
        order = np.argsort(-odds, axis=-1, kind="stable")
        mass = np.cumsum(np.take_along_axis(odds, order, -1), axis=-1)
        # Keep a token if the likelier ones have less than this mass, so always the likeliest.
        beyond = (
            np.concatenate([np.zeros((len(mass), 1)), mass[:, :-1]], axis=-1) >= parameters.top_p * mass[:, -1:]
        )
        np.put_along_axis(odds, order, np.where(beyond, 0.0, np.take_along_axis(odds, order, -1)), -1)
    mass = np.cumsum(odds, axis=-1)
    return np.asarray((mass <= chance[:, None] * mass[:, -1:]).sum(axis=-1), np.int64)
