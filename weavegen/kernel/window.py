"""Cuts a prompt that is too long for a small model's window, at the beginning of a block. Pure."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

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


def fitted(prompt: str, room: int, encode: Callable[[str], list[int]]) -> list[int]:
    """The tokens of a prompt, at most `room`: what precedes its blocks, and as many of its last blocks as fit.

    The pinned blocks keep as much as `context.fit` lets them; of the others only the last one may lose its end. Each
    part is encoded alone, as the server did. A conversation has no blocks, and keeps its end.
    """
    end = prompt.rfind(_END) + len(_END) if _END in prompt else 0
    blocks = list(_BLOCK.finditer(prompt, 0, end))
    starts = [0, *(block.start() for block in blocks), end, len(prompt)]
    *parts, asking = (encode(prompt[start:stop]) for start, stop in pairwise(starts))
    pinned = 1 + sum(block[1] in ("genesis", "bootstrap") for block in blocks[:PINNED])
    kept, _ = fit([len(ids) for ids in parts[:pinned]], [], len(asking), room)
    begin = [id for ids, amount in zip(parts, kept, strict=False) for id in ids[:amount]]
    others, asking = parts[pinned:], asking[len(begin) - room :]
    left = room - len(begin) - len(asking)
    while len(others) > 1 and sum(map(len, others)) > left:
        del others[0]
    return [*begin, *[id for ids in others for id in ids][:left], *asking]
