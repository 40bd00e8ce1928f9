"""Cuts a prompt that is too long for a small model's window, at the beginning of a block. Pure."""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise, takewhile

from weavegen.kernel.context import PINNED, fit

BORDER = "#startblock type: "
"""The text of the token that begins a block. Long prompts are cut at this token if the tokenizer has it."""
_BLOCK = re.compile(rf"^(?:#subagent .*\n)?{BORDER}(.*)", re.MULTILINE)
_END = "\n#endblock\n\n"


def cut(ids: Sequence[int], room: int, border: int | None) -> list[int]:
    """Cut a prompt to at most `room` tokens. A long prompt keeps its first token and its end.

    It is cut at a `border` token, so that its remaining blocks are whole. More is cut than necessary, so that later
    prompts that extend this prompt are cut at the same place and found in the prefix cache.
    """
    spare = len(ids) - room
    if spare <= 0:
        return list(ids)
    step = max(1, room // 2)
    least = 1 + -(-spare // step) * step  # a multiple of `step` changes rarely; 1: the first token
    borders = [at for at in range(spare + 1, len(ids)) if ids[at] == border]
    start = next((at for at in borders if at >= least), len(ids))
    if len(ids) - start < max(1, room // 4):
        start = borders[0] if borders else min(least, len(ids) - 1)
    return [ids[0], *ids[start:]]


def parts(prompt: str) -> tuple[list[str], list[str], str]:
    """The text before a prompt's blocks with its pinned blocks; its other blocks; and what follows the last block."""
    end = prompt.rfind(_END) + len(_END) if _END in prompt else 0
    blocks = list(_BLOCK.finditer(prompt, 0, end))
    starts = [0, *(block.start() for block in blocks), end]
    texts = [prompt[start:after] for start, after in pairwise(starts)]
    pinned = 1 + sum(block[1] in ("genesis", "bootstrap") for block in blocks[:PINNED])
    return texts[:pinned], texts[pinned:], prompt[end:]


def fitted(pinned: Sequence[list[int]], others: Sequence[list[int]], asking: list[int], room: int) -> list[int]:
    """The tokens of a prompt's `parts`, at most `room`.

    The pinned blocks keep as much as `context.fit` lets them. As many of the last blocks stay as fit, each of them
    whole; only if the last one does not fit, it loses its end.
    """
    kept, _ = fit([len(ids) for ids in pinned], [], len(asking), room)
    left = room - sum(kept)
    asking = asking[-left:]
    left -= len(asking)
    whole = len(list(takewhile(lambda size: size <= left, accumulate(len(ids) for ids in reversed(others)))))
    last = others[len(others) - whole :] or [ids[:left] for ids in others[-1:]]
    begin = [ids[:amount] for ids, amount in zip(pinned, kept, strict=True)]
    return [id for ids in (*begin, *last, asking) for id in ids]
