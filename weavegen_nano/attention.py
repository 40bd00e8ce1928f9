"""Keys and values of a prompt, of the continuations that share it, and of earlier prompts (the prefix cache)."""

from collections import OrderedDict

import numpy as np

from weavegen_nano.llama import Floats, Ids, Llama, Shape

BLOCK = 16
"""Tokens per block of the prefix cache; vLLM's default."""
_CHUNK = 256
"""Prompt tokens computed at once. Small chunks waste less work on scores that the causal mask removes."""
_GROW = 64
"""Initial capacity of a continuation in tokens. A full continuation doubles its capacity."""


class Prompt:
    """Keys and values of a prompt's tokens."""

    def __init__(self, ids: Ids, shape: Shape) -> None:
        self.ids = ids
        self.known = 0
        """Number of tokens from the beginning whose keys and values are computed."""
        self.keys: Floats = np.empty((shape.layers, shape.kv_heads, shape.head, len(ids)), np.float32)
        """(layers, heads, head, tokens): transposed for the product with the queries."""
        self.values: Floats = np.empty((shape.layers, shape.kv_heads, len(ids), shape.head), np.float32)

    def read(self, model: Llama) -> Floats:
        """Compute the missing keys and values. Returns (1, vocabulary): the logits after the last token."""
        hidden = np.empty((0, 0), np.float32)
        while self.known < len(self.ids):
            end = min(self.known + _CHUNK, len(self.ids))
            positions = np.arange(self.known, end)
            hidden = model.forward(self.ids[self.known : end], positions, self._attend)
            self.known = end
        return model.logits(hidden[-1:])

    def _attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        rows, heads, group, head = queries.shape
        start, end = self.known, self.known + rows
        self.keys[layer, :, :, start:end] = keys.transpose(1, 2, 0)
        self.values[layer, :, start:end] = values.transpose(1, 0, 2)
        # (heads, group x rows, head): one product for all queries that share keys
        q = queries.transpose(1, 2, 0, 3).reshape(heads, group * rows, head)
        scores = q @ self.keys[layer, :, :, :end]
        later = np.triu(np.full((rows, rows), -np.inf, np.float32), 1)
        scores.reshape(heads, group, rows, end)[..., start:] += later
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        seen = (scores @ self.values[layer, :, :end]) / scores.sum(axis=-1, keepdims=True)
        rows_first: Floats = seen.reshape(heads, group, rows, head).transpose(2, 0, 1, 3)
        return rows_first


class Continuations:
    """Keys and values of the continuations of a prompt. All of them have the same length."""

    def __init__(self, prompt: Prompt, shape: Shape, count: int) -> None:
        self._prompt, self.length = prompt, 0
        self._keys: Floats = np.empty((shape.layers, count, shape.kv_heads, shape.head, _GROW), np.float32)
        self._values: Floats = np.empty((shape.layers, count, shape.kv_heads, _GROW, shape.head), np.float32)

    @property
    def position(self) -> int:
        """Position of the next token of each continuation."""
        return len(self._prompt.ids) + self.length

    def keep(self, rows: Ids) -> None:
        """Keep only these rows."""
        self._keys, self._values = self._keys[:, rows], self._values[:, rows]

    def extend(self) -> None:
        """Make room for one more token."""
        if self.length == self._keys.shape[-1]:
            self._keys = np.concatenate([self._keys, np.empty_like(self._keys)], axis=-1)
            self._values = np.concatenate([self._values, np.empty_like(self._values)], axis=-2)
        self.length += 1

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Let each row attend to the prompt and its own continuation. `keys`, `values`: of the last token."""
        rows, heads, group, head = queries.shape
        own, end = self._keys[layer], self.length
        own[..., end - 1] = keys
        self._values[layer, :, :, end - 1] = values
        q = queries.transpose(1, 0, 2, 3).reshape(heads, rows * group, head)
        before = (q @ self._prompt.keys[layer]).reshape(heads, rows, group, -1)
        since = (queries @ own[..., :end]).transpose(1, 0, 2, 3)
        peak = np.maximum(before.max(axis=-1), since.max(axis=-1))[..., None]
        before = np.exp(before - peak)
        since = np.exp(since - peak)
        total = before.sum(axis=-1) + since.sum(axis=-1)
        seen = (before.reshape(heads, rows * group, -1) @ self._prompt.values[layer]).reshape(heads, rows, group, head)
        seen = seen + (since.transpose(1, 0, 2, 3) @ self._values[layer, :, :, :end]).transpose(1, 0, 2, 3)
        rows_first: Floats = (seen / total[..., None]).transpose(1, 0, 2, 3)
        return rows_first


class PrefixCache:
    """Keys and values of blocks of prompts, by the hash of all tokens up to the block's end. Evicts by LRU."""

    def __init__(self, tokens: int) -> None:
        """`tokens`: maximum number of tokens."""
        self.size = tokens // BLOCK
        self._blocks: OrderedDict[int, tuple[Floats, Floats]] = OrderedDict()

    @property
    def usage(self) -> float:
        """Fraction of the cache in use, 0 to 1."""
        return len(self._blocks) / self.size if self.size else 0.0

    def find(self, prompt: Prompt) -> int:
        """Copy cached blocks into a prompt. Returns the number of copied tokens, which never include the last token."""
        known = []
        for number, key in enumerate(_keys(prompt.ids[:-1])):
            if key not in self._blocks:
                break
            known.append(key)
            keys, values = self._blocks[key]
            at = slice(number * BLOCK, (number + 1) * BLOCK)
            prompt.keys[..., at] = keys
            prompt.values[:, :, at] = values
        self._use(known)
        prompt.known = len(known) * BLOCK
        return prompt.known

    def keep(self, prompt: Prompt) -> None:
        """Add the blocks of a computed prompt."""
        keys = _keys(prompt.ids)
        for number, key in enumerate(keys):
            if key not in self._blocks:
                at = slice(number * BLOCK, (number + 1) * BLOCK)
                self._blocks[key] = prompt.keys[..., at].copy(), prompt.values[:, :, at].copy()
        self._use(keys)
        while len(self._blocks) > self.size:
            self._blocks.popitem(last=False)

    def _use(self, keys: list[int]) -> None:
        for key in reversed(keys):  # the first block is marked last: without it the others can't be found
            self._blocks.move_to_end(key)


def _keys(ids: Ids) -> list[int]:
    """Return a key for each whole block: the hash of all tokens up to its end."""
    keys, key = [], 0
    for start in range(0, len(ids) // BLOCK * BLOCK, BLOCK):
        key = hash((key, ids[start : start + BLOCK].tobytes()))
        keys.append(key)
    return keys
