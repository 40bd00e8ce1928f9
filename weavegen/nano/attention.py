"""Keys and values: of a prompt, of the continuations that share it, and of prompts that were read before."""

from collections import OrderedDict

import numpy as np

from weavegen.nano.llama import Floats, Ids, Llama, Shape

BLOCK = 16
"""Tokens that the prefix cache keeps together, as vLLM does."""
_CHUNK = 256
"""Prompt tokens computed at once. A chunk attends to nothing behind it, so less is computed in vain."""
_GROW = 64
"""Tokens that a continuation has room for at first; then twice as many, and so on."""


class Prompt:
    """Keys and values of a prompt's tokens."""

    def __init__(self, ids: Ids, shape: Shape) -> None:
        self.ids = ids
        self.known = 0
        """Of how many tokens, from the first, keys and values are computed."""
        self.keys: Floats = np.empty((shape.layers, shape.kv_heads, shape.head, len(ids)), np.float32)
        """Transposed, as they are multiplied."""
        self.values: Floats = np.empty((shape.layers, shape.kv_heads, len(ids), shape.head), np.float32)

    def read(self, model: Llama) -> Floats:
        """Compute what is not known yet. Returns (1, vocabulary): the logits behind the last token."""
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
        # (heads, group x rows, head): one product for all queries that share keys.
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
    """Keys and values of the continuations of one prompt, all of one length, in the order of their rows."""

    def __init__(self, prompt: Prompt, shape: Shape, count: int) -> None:
        self._prompt, self.length = prompt, 0
        self._keys: Floats = np.empty((shape.layers, count, shape.kv_heads, shape.head, _GROW), np.float32)
        self._values: Floats = np.empty((shape.layers, count, shape.kv_heads, _GROW, shape.head), np.float32)

    @property
    def position(self) -> int:
        """Of the token that each continuation is to be given next."""
        return len(self._prompt.ids) + self.length

    def keep(self, rows: Ids) -> None:
        """Go on with these rows alone."""
        self._keys, self._values = self._keys[:, rows], self._values[:, rows]

    def extend(self) -> None:
        """Make room for a token more."""
        if self.length == self._keys.shape[-1]:
            self._keys = np.concatenate([self._keys, np.empty_like(self._keys)], axis=-1)
            self._values = np.concatenate([self._values, np.empty_like(self._values)], axis=-2)
        self.length += 1

    def attend(self, layer: int, queries: Floats, keys: Floats, values: Floats) -> Floats:
        """Each row to the prompt and to its own continuation; `keys` and `values` are its last token's."""
        rows, heads, group, head = queries.shape
        own, end = self._keys[layer], self.length
        own[..., end - 1] = keys
        self._values[layer, :, :, end - 1] = values
        q = queries.transpose(1, 0, 2, 3).reshape(heads, rows * group, head)
        before = (q @ self._prompt.keys[layer]).reshape(heads, rows, group, -1)
        since = (queries @ own[..., :end]).transpose(1, 0, 2, 3)
        most = np.maximum(before.max(axis=-1), since.max(axis=-1))[..., None]
        before = np.exp(before - most)
        since = np.exp(since - most)
        total = before.sum(axis=-1) + since.sum(axis=-1)
        seen = (before.reshape(heads, rows * group, -1) @ self._prompt.values[layer]).reshape(
            heads, rows, group, head
        )
        seen = seen + (since.transpose(1, 0, 2, 3) @ self._values[layer, :, :, :end]).transpose(1, 0, 2, 3)
        rows_first: Floats = (seen / total[..., None]).transpose(1, 0, 2, 3)
        return rows_first


class PrefixCache:
    """Keys and values of blocks of prompts, known by all tokens up to their ends. The longest unused go first."""

    def __init__(self, tokens: int) -> None:
        """`tokens`: how many it holds at most."""
        self.size = tokens // BLOCK
        self._blocks: OrderedDict[int, tuple[Floats, Floats]] = OrderedDict()

    @property
    def usage(self) -> float:
        """Share of it that is taken."""
        return len(self._blocks) / self.size if self.size else 0.0

    def find(self, prompt: Prompt) -> int:
        """Give a prompt what is known of its beginning: how many tokens. The last one is always computed."""
        found = []
        for number, key in enumerate(_keys(prompt.ids[:-1])):
            if key not in self._blocks:
                break
            found.append(key)
            keys, values = self._blocks[key]
            at = slice(number * BLOCK, (number + 1) * BLOCK)
            prompt.keys[..., at] = keys
            prompt.values[:, :, at] = values
        self._use(found)
        prompt.known = len(found) * BLOCK
        return prompt.known

    def keep(self, prompt: Prompt) -> None:
        """Remember a prompt that was read."""
        keys = _keys(prompt.ids)
        for number, key in enumerate(keys):
            if key not in self._blocks:
                at = slice(number * BLOCK, (number + 1) * BLOCK)
                self._blocks[key] = prompt.keys[..., at].copy(), prompt.values[:, :, at].copy()
        self._use(keys)
        while len(self._blocks) > self.size:
            self._blocks.popitem(last=False)

    def _use(self, keys: list[int]) -> None:
        for key in reversed(keys):  # the first block last of all: without it those behind it can't be found
            self._blocks.move_to_end(key)


def _keys(ids: Ids) -> list[int]:
    """One for each whole block, which stands for all tokens up to its end."""
    keys, key = [], 0
    for start in range(0, len(ids) // BLOCK * BLOCK, BLOCK):
        key = hash((key, ids[start : start + BLOCK].tobytes()))
        keys.append(key)
    return keys
