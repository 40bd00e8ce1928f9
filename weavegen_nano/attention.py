"""Keys and values of a prompt, of the continuations that share it, and of earlier prompts (the prefix cache)."""

import itertools
from collections import OrderedDict

import numpy as np

from weavegen_nano.llama import Floats, Ids, Llama, Shape

BLOCK = 16
"""Tokens per block of the prefix cache; vLLM's default."""
_CHUNK = 256
"""Prompt tokens computed at once. Small chunks waste less work on scores that the causal mask removes."""
_FEW = 16
"""Up to this many queries, OpenBLAS multiplies the keys by them in less than half the time of queries by keys."""
_GROW = 64
"""Initial capacity of a continuation in tokens. A full continuation doubles its capacity."""


class Prompt:
    """Keys and values of a prompt's tokens."""

    def __init__(self, ids: Ids, shape: Shape) -> None:
        self.ids = ids
        self.known = 0
        """Number of tokens from the beginning whose keys and values are computed."""
        self.cached: Floats = np.empty((2, shape.layers, shape.kv_heads, len(ids), shape.head), np.float32)
        """(keys and values, layers, heads, tokens, head)."""

    def read(self, model: Llama) -> Floats:
        """Compute the missing keys and values. Returns (1, vocabulary): the logits after the last token."""
        hidden = np.empty((0, 0), np.float32)
        while self.known < len(self.ids):
            end = min(self.known + _CHUNK, len(self.ids))
            positions = np.arange(self.known, end)
            hidden = model.forward(self.ids[self.known : end], positions, self._attend, last=True)
            self.known = end
        return model.logits(hidden)

    def _attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        rows, heads, group, head = queries.shape
        start, end = self.known, self.known + len(keys)
        self.cached[0, layer, :, start:end] = keys.transpose(1, 0, 2)
        self.cached[1, layer, :, start:end] = values.transpose(1, 0, 2)
        known = self.cached[:, layer, :, :end]
        # (heads, group x rows, head): one product for all queries that share keys
        q = queries.transpose(1, 2, 0, 3).reshape(heads, group * rows, head)
        scores = q @ known[0].swapaxes(-1, -2)
        if rows > 1:
            later = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
            scores.reshape(heads, group, rows, end)[..., start:] += later
        total = _exponentials(scores)
        seen = scores @ known[1]
        seen /= total
        rows_first: Floats = seen.reshape(heads, group, rows, head).transpose(2, 0, 1, 3)
        return rows_first


class Continuations:
    """Keys and values of the continuations of a prompt. All of them have the same length."""

    def __init__(self, prompt: Prompt, shape: Shape, count: int) -> None:
        self._prompt, self.length = prompt, 0
        self._cached: Floats = np.empty((2, shape.layers, count, shape.kv_heads, _GROW, shape.head), np.float32)
        """(keys and values, layers, continuations, heads, capacity in tokens, head)."""

    @property
    def position(self) -> int:
        """Position of the next token of each continuation."""
        return len(self._prompt.ids) + self.length

    def keep(self, rows: Ids) -> None:
        """Keep only these rows."""
        self._cached = self._cached[:, :, rows]

    def tokens(self, row: int, start: int) -> Floats:
        """Return the keys and values of a row's text from the prompt's token `start` on."""
        own = self._cached[:, :, row, :, : self.length]
        return np.concatenate([self._prompt.cached[..., start:, :], own], axis=-2)

    def extend(self) -> None:
        """Make room for one more token."""
        if self.length == self._cached.shape[-2]:
            self._cached = np.concatenate([self._cached, np.empty_like(self._cached)], axis=-2)
        self.length += 1

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Let each row attend to the prompt and its own continuation. `keys`, `values`: of the last token."""
        rows, heads, group, head = queries.shape
        own, end = self._cached[:, layer, :, :, : self.length], len(self._prompt.ids)
        own[0, :, :, -1], own[1, :, :, -1] = keys, values
        before, before_values = self._prompt.cached[:, layer]
        q = queries.transpose(1, 0, 2, 3).reshape(heads, rows * group, head)
        scores = np.empty((heads, rows * group, end + self.length), np.float32)
        since = scores.reshape(heads, rows, group, -1)[..., end:].transpose(1, 0, 2, 3)
        if rows * group <= _FEW:
            scores[..., :end] = (before @ q.swapaxes(-1, -2)).swapaxes(-1, -2)
        else:
            np.matmul(q, before.swapaxes(-1, -2), out=scores[..., :end])
        np.matmul(queries, own[0].swapaxes(-1, -2), out=since)
        total = _exponentials(scores)
        seen = scores[..., :end] @ before_values
        seen.reshape(heads, rows, group, head)[...] += (since @ own[1]).transpose(1, 0, 2, 3)
        seen /= total
        rows_first: Floats = seen.reshape(heads, rows, group, head).transpose(1, 0, 2, 3)
        return rows_first


def _exponentials(scores: Floats) -> Floats:
    """Replace scores by the numerators of their softmax over the last axis. Returns the denominators."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total: Floats = scores.sum(axis=-1, keepdims=True)
    return total


class PrefixCache:
    """Keys and values of blocks of texts, by the hash of all tokens up to the block's end. Evicts by LRU."""

    def __init__(self, tokens: int) -> None:
        """`tokens`: maximum number of tokens."""
        self.size = tokens // BLOCK
        self._blocks: OrderedDict[int, Floats] = OrderedDict()

    def find(self, prompt: Prompt) -> int:
        """Copy cached blocks into a prompt. Returns the number of copied tokens, which never include the last token."""
        known = list(itertools.takewhile(self._blocks.__contains__, _keys(prompt.ids[:-1])))
        for number, key in enumerate(known):
            prompt.cached[..., number * BLOCK : (number + 1) * BLOCK, :] = self._blocks[key]
        self._use(known)
        prompt.known = len(known) * BLOCK
        return prompt.known

    def keep(self, ids: Ids, cached: Floats, start: int = 0) -> None:
        """Add the whole blocks of computed tokens. `cached`: from the token `start` on, which begins a block."""
        keys = _keys(ids)
        for number, key in enumerate(keys[start // BLOCK :]):
            if key not in self._blocks:
                self._blocks[key] = cached[..., number * BLOCK : (number + 1) * BLOCK, :].copy()
        self._use(keys)
        while len(self._blocks) > self.size:
            self._blocks.popitem(last=False)

    def _use(self, keys: list[int]) -> None:
        for key in reversed(keys):  # the first block is marked last: without it the others can't be found
            if key in self._blocks:
                self._blocks.move_to_end(key)


def _keys(ids: Ids) -> list[int]:
    """Return a key for each whole block: the hash of all tokens up to its end."""
    keys, key = [], 0
    for start in range(0, len(ids) // BLOCK * BLOCK, BLOCK):
        key = hash((key, ids[start : start + BLOCK].tobytes()))
        keys.append(key)
    return keys
