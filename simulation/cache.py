"""The simulated KV cache: which tokens it holds, and how many of them a new prompt can reuse.

Tokens are kept in segments. The key of a segment is a hash of its tokens and of all tokens before it. Hits are
counted in blocks of 16 tokens, as in vLLM. Memory is shared and freed in whole segments of 16 blocks, so that a long
prompt costs one look-up per segment and not one per block.
"""

from collections import Counter, OrderedDict
from functools import cached_property

BLOCK = 16
"""Tokens in a block: vLLM's default --block-size on GPUs."""
WIDTH = 4
"""Bytes of a token in the output of `tokenizer.packed`."""
_SEGMENT = 16 * BLOCK * WIDTH


class Prompt:
    """Tokens of a prompt, and the keys of its segments. The last segment may be shorter than the others."""

    def __init__(self, data: bytes) -> None:
        """`data`: token ids, packed by `tokenizer.packed`."""
        self.data = data
        self.tokens = len(data) // WIDTH

    @cached_property
    def keys(self) -> list[int]:
        """One key for each segment; tokens after the last whole block have none."""
        keys, key, data = [], 0, self.data
        end = len(data) // (BLOCK * WIDTH) * (BLOCK * WIDTH)
        for start in range(0, end, _SEGMENT):
            key = hash((key, data[start : min(start + _SEGMENT, end)]))
            keys.append(key)
        return keys

    def blocks(self, number: int) -> list[int]:
        """Hashes of the blocks of segment `number`."""
        block = self.keys[number - 1] if number else 0
        hashes, width = [], BLOCK * WIDTH
        end = min((number + 1) * _SEGMENT, len(self.data) // width * width)
        for start in range(number * _SEGMENT, end, width):
            block = hash((block, self.data[start : start + width]))
            hashes.append(block)
        return hashes

    def goes_on(self, output: bytes) -> "Prompt":
        """This prompt followed by the tokens of an answer. Hashes of whole segments are reused."""
        longer = Prompt(self.data + output)
        whole = len(self.data) // _SEGMENT
        key = self.keys[whole - 1] if whole else 0
        rest = longer.data[whole * _SEGMENT :]
        longer.keys = self.keys[:whole]
        end = len(rest) // (BLOCK * WIDTH) * (BLOCK * WIDTH)
        for start in range(0, end, _SEGMENT):
            key = hash((key, rest[start : min(start + _SEGMENT, end)]))
            longer.keys.append(key)
        return longer


class Cache:
    """The segments in the KV cache: those that running sequences hold, and those that are free for reuse."""

    def __init__(self, capacity: int, *, shares: bool) -> None:
        """`capacity`: in tokens. `shares`: whether the prefix cache is on."""
        self.capacity, self._shares = capacity, shares
        self._holders: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._blocks: dict[int, list[int]] = {}
        self._known: Counter[int] = Counter()
        self.held = 0
        """Tokens in segments that running sequences hold."""
        self.free = 0
        """Tokens in segments that no running sequence holds."""

    def hits(self, prompt: Prompt) -> int:
        """Tokens of the prompt that are cached. The last token is always computed, to get the next one."""
        if not self._shares:
            return 0
        cached = 0
        for number, key in enumerate(prompt.keys):
            blocks = self._blocks.get(key)
            if blocks is None:
                for block in prompt.blocks(number):
                    if block not in self._known:
                        break
                    cached += BLOCK
                break
            cached += BLOCK * len(blocks)
        return min(cached, (prompt.tokens - 1) // BLOCK * BLOCK)

    def missing(self, prompt: Prompt) -> int:
        """Tokens of the prompt that no running sequence holds yet."""
        if not self._shares:
            return prompt.tokens
        held = self._holders
        return prompt.tokens - sum(BLOCK * len(self._blocks[key]) for key in prompt.keys if key in held)

    def own(self, prompt: Prompt) -> int:
        """Tokens of a prompt outside its segments: they are never shared."""
        return prompt.tokens % BLOCK if self._shares else prompt.tokens

    def hold(self, prompt: Prompt) -> None:
        """Hold the prompt of a sequence that starts."""
        if not self._shares:
            return
        for number, key in enumerate(prompt.keys):
            holders = self._holders.get(key, 0)
            if not holders:
                if key not in self._blocks:
                    self._add(key, prompt.blocks(number))
                del self._free[key]
                size = BLOCK * len(self._blocks[key])
                self.free -= size
                self.held += size
            self._holders[key] = holders + 1

    def release(self, prompt: Prompt, computed: int) -> None:
        """Release the prompt of a sequence that leaves the batch; its first `computed` tokens were computed."""
        if not self._shares:
            return
        end = prompt.tokens // BLOCK * BLOCK
        for key in reversed(prompt.keys):  # so that a segment is evicted before the segments in front of it
            size = BLOCK * len(self._blocks[key])
            holders = self._holders[key] - 1
            if holders:
                self._holders[key] = holders
            else:
                del self._holders[key]
                self.held -= size
                self.free += size
                self._free[key] = None
                if end > computed:
                    self._remove(key)
            end -= size

    def keep(self, prompt: Prompt) -> None:
        """Keep the segments of a text that no sequence holds, as long as there is room."""
        if not self._shares:
            return
        for number in range(len(prompt.keys) - 1, -1, -1):
            key = prompt.keys[number]
            if key in self._holders:
                continue
            if key not in self._blocks:
                self._add(key, prompt.blocks(number))
            self._free.move_to_end(key)

    def shrink(self, own: int) -> None:
        """Evict the least recently used segments. `own`: tokens that sequences hold outside of segments."""
        most = max(0, self.capacity - self.held - own)
        while self.free > most:
            self._remove(next(iter(self._free)))

    def _add(self, key: int, blocks: list[int]) -> None:
        self._blocks[key] = blocks
        self._free[key] = None
        self.free += BLOCK * len(blocks)
        for block in blocks:
            self._known[block] += 1

    def _remove(self, key: int) -> None:
        del self._free[key]
        blocks = self._blocks.pop(key)
        self.free -= BLOCK * len(blocks)
        for block in blocks:
            if self._known[block] == 1:
                del self._known[block]
            else:
                self._known[block] -= 1
