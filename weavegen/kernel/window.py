"""Cuts a prompt that is too long for a small model's window, at the beginning of a block. Pure."""

from collections.abc import Sequence

BORDER = "#startblock type: "
"""The text of the token that begins a block. Long prompts are cut at this token if the tokenizer has it."""


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
