"""What the model reads: which blocks are in the window, how a prompt or a conversation is put together."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from weavegen.kernel import prompts
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Prompt
from weavegen.trace.blocks import MESSAGE, BlockType

STOP = ("#endblock", "#startblock", "\n#q: ", "\n# q:", "</s>", "[/INST]")
"""Where a continuation ends (WEAVE section 4). The first four are the server's to stop at: vLLM takes no more."""

LINE_STOP = ("\n", "#endblock", "#startblock")
"""Where a line of a header ends: a BM25 query, a block's type."""

_BEGUN = sorted({word[:length] for word in STOP for length in range(1, len(word))}, key=len, reverse=True)

PINNED = 2
"""The genesis and the bootstrap block are always in the context."""


def window(blocks: int, settings: Settings) -> tuple[int, int]:
    """[first, end) of the blocks in the context of a trace that has `blocks`, besides the pinned ones.

    Grows to `settings.window`, then falls to `settings.window_kept`: between two falls every prompt extends
    the one before, which is what the server's prefix cache lives on. A function of the count alone, so it
    needs no state.
    """
    over = blocks - PINNED - settings.window
    if over <= 0:
        return PINNED, max(blocks, PINNED)
    chunk = settings.window - settings.window_kept
    return PINNED + -(-over // chunk) * chunk, blocks


def compose(
    prompt: Prompt,
    pinned: Sequence[str],
    tail: Sequence[str],
    recalled: Sequence[tuple[BlockType, str]],
    s: Settings,
) -> str:
    """The prompt's text up to the body of the block to come; the body's fixed prefix is not in it.

    `pinned` and `tail` are rendered blocks; `recalled` are retrieved ones, best first.
    """
    return "".join([s.prompt_open, *pinned, *tail, retrieved(recalled), asked(prompt, s)])


def retrieved(recalled: Sequence[tuple[BlockType, str]]) -> str:
    """Retrieved blocks as they stand in a prompt."""
    if not recalled:
        return ""
    blocks = (f"# Retrieved block {number}:\n{_comment_out(*one)}" for number, one in enumerate(recalled, 1))
    return "".join(["# START RETRIEVED BLOCKS\n", *blocks, "# END RETRIEVED BLOCKS\n\n"])


def asked(prompt: Prompt, s: Settings) -> str:
    """The prompt's last part: what the model is to do, and the header of the block to come."""
    if prompt.next:
        instruction = prompts.next_instruction()
    elif prompt.query:
        instruction = prompts.query_instruction(prompt.type)
    else:
        instruction = prompts.instruction(prompt.type)
    return f"{instruction}{s.prompt_close}\n{prompt.header}"


SPOKEN = {BlockType.SYSTEM: "system", BlockType.ASSISTANT: "assistant"}
"""Roles of messages in the chat template; of all others it is the user's, as in Hermes's format for tools."""
LEFT_OUT = "<tool_response>"
"""What only the world says: where a message of the model would begin with it, the message ends."""


def opening(type: BlockType, s: Settings) -> str:
    """What stands before a message."""
    return s.message_open.replace("{role}", SPOKEN.get(type, "user"))


def spoken(type: BlockType, body: str, s: Settings) -> str:
    """A message as the model reads it. What would read as the template's own marks gets a space in it."""
    for mark in (s.message_open.partition("{role}")[0].strip(), s.message_close.strip()):
        if mark:
            body = body.replace(mark, f"{mark[0]} {mark[1:]}")
    return f"{opening(type, s)}{body}{s.message_close}"


def stops(prompt: Prompt, s: Settings) -> tuple[str, ...]:
    """Where a continuation of a prompt ends."""
    if prompt.type in MESSAGE:
        close = s.message_close.strip()
        return (close, LEFT_OUT) if close else (LEFT_OUT,)
    return LINE_STOP if prompt.query or prompt.next else STOP


def aside(room: int) -> int:
    """Tokens that what is retrieved and asked may take of `room`: a fixed part, so that the rest is not moved."""
    return room // 8


def fit(pinned: Sequence[int], tail: Sequence[int], asking: int, room: int) -> tuple[list[int], list[int]]:
    """How much of each pinned block and of each in the tail is kept, so that a prompt takes `room` tokens at most.

    All numbers are tokens; `asking` is what stands after the tail. The pinned blocks may take half of the room,
    and lose their ends. The tail gets what is left, and loses its oldest blocks: in chunks, by a rule without
    state that starts at the window's first block, so that prompts keep their beginning for many blocks and the
    server's prefix cache serves them. The newest block always stays, without its end if need be.
    """
    kept, left = [], room // 2
    for tokens in pinned:
        kept.append(min(tokens, left))
        left -= kept[-1]
    if not tail:
        return kept, []
    budget = max(1, room - sum(kept) - max(asking, aside(room)))
    ends = list(accumulate(tail))
    first = 0
    if ends[-1] > budget:
        chunk = max(1, budget // 3)
        dropped = -(-(ends[-1] - budget) // chunk) * chunk
        first = min(sum(end - tokens < dropped for end, tokens in zip(ends, tail, strict=True)), len(tail) - 1)
    return kept, [0] * first + [*tail[first:-1], min(tail[-1], budget)]


def left_out(indexes: Sequence[int], sizes: Sequence[int], amounts: Sequence[int]) -> dict[str, Any]:
    """What `fit` took from the blocks with these indexes, for the record."""
    lost = [one for one in zip(indexes, sizes, amounts, strict=True) if one[2] < one[1]]
    return {
        "blocks_left_out": sum(not amount for _, _, amount in lost),
        "blocks_shortened_to": {str(index): amount for index, _, amount in lost if amount},
    }


def _comment_out(type: BlockType, text: str) -> str:
    marked = text.replace(f"#startblock type: {type}\n", f"#startblock type: recalled-{type}\n", 1)
    return "".join(f"# {line}\n" for line in marked.rstrip("\n").split("\n"))


def without_begun_stop(text: str) -> str:
    """A text that was cut off, less what may be the beginning of a stop string at its end.

    The model will be asked to go on from there, and no server looks for stop strings across that border.
    """
    while begun := next((word for word in _BEGUN if text.endswith(word)), None):
        text = text.removesuffix(begun)
    return text


def question_suffix(text: str, question: str) -> str:
    """What follows a context to ask about `text`, the block's body: the answer is the next token."""
    text = text.rstrip("\n")  # as the trace will have it
    return f"{text}\n{prompts.calibration()}#q: {question} "
