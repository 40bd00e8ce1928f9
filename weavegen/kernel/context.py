"""What the model reads: the window, the text of a prompt, the messages of a conversation, what is left out."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from weavegen.kernel import prompts
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import Template
from weavegen.trace.blocks import MESSAGE, BlockType

STOP = ("#endblock", "#startblock", "\n#q: ", "\n# q:")
"""Stop strings of a block. The texts that end or begin a message are others (`block_stops`). vLLM takes four."""

LINE_STOP = ("\n", "#endblock", "#startblock")
"""Stop strings of a header line: a BM25 query, a block's type."""

PINNED = 2
"""The genesis and the bootstrap block are always in the context."""


def window(blocks: int, settings: Settings) -> tuple[int, int]:
    """[first, end) of the blocks that are in the context besides the pinned ones. `blocks`: those of the trace.

    The window grows to `settings.window`, then falls to `settings.window_kept`. Between two falls every prompt
    extends the one before, so the server's prefix cache serves it. The window depends on the count alone.
    """
    over = blocks - PINNED - settings.window
    if over <= 0:
        return PINNED, max(blocks, PINNED)
    chunk = settings.window - settings.window_kept
    return PINNED + -(-over // chunk) * chunk, blocks


def retrieved(recalled: Sequence[tuple[BlockType, str]]) -> str:
    """Retrieved blocks as the prompt shows them: comments."""
    if not recalled:
        return ""
    lines = ["# START RETRIEVED BLOCKS"]
    for number, (type, text) in enumerate(recalled, 1):
        marked = text.replace(f"#startblock type: {type}\n", f"#startblock type: recalled-{type}\n", 1)
        lines += [f"# Retrieved block {number}:", *(f"# {line}" for line in marked.rstrip("\n").split("\n"))]
    return "\n".join([*lines, "# END RETRIEVED BLOCKS\n\n"])


def asked(prompt: Prompt, template: Template) -> str:
    """The last part of a prompt: the instruction and the header of the block to write."""
    if prompt.next or prompt.query:
        instruction = prompts.instruction(prompt.type, "next" if prompt.next else "query")
    else:
        instruction = prompts.instruction(prompt.type) + (f"\n{prompt.hint}" if prompt.hint else "")
    asking = f"{instruction}{template.block_close}"
    if prompt.draft:
        asking = retrieved([(prompt.type, f"#startblock type: {prompt.type}\n{prompt.draft}\n#endblock\n")]) + asking
    return asking.removesuffix("\n") + "\n" + prompt.header


LEFT_OUT = "<tool_response>"
"""Only the environment writes this. A message of the model ends where it would write it."""


def role(type: BlockType) -> str:
    """The role of a message in a chat. Messages of tools have the role user, as in the Hermes format."""
    return type.value if type in (BlockType.SYSTEM, BlockType.ASSISTANT) else "user"


def opening(type: BlockType, template: Template, after: BlockType | None = None) -> str:
    """The template's text before a message. `after`: type of the message before it; None: it is the first."""
    if type is BlockType.ASSISTANT:
        return template.assistant_open
    if type is BlockType.SYSTEM:
        return template.first_system if after is None else template.system_open
    if after is BlockType.SYSTEM and template.system_in_user:
        return ""
    return template.first_user if after is None else template.user_open


def closing(type: BlockType, template: Template) -> str:
    """The template's text after a message."""
    if type is BlockType.ASSISTANT:
        return template.assistant_close
    return template.after_system if type is BlockType.SYSTEM else template.user_close


def unmarked(text: str, template: Template) -> str:
    """Text with a space in each of the template's marks, so that it can't end a message or begin another."""
    for mark in template.marks:
        text = text.replace(mark, f"{mark[0]} {mark[1:]}")
    return text


def spoken(type: BlockType, body: str, template: Template, after: BlockType | None = None) -> str:
    """A message as the model reads it."""
    begin = template.reply_open if type is BlockType.ASSISTANT else opening(type, template, after)
    return f"{begin}{unmarked(body, template)}{closing(type, template)}"


def stops(prompt: Prompt, template: Template) -> tuple[str, ...]:
    """The stop strings of a prompt's continuation."""
    if prompt.type in MESSAGE:
        return (template.end, LEFT_OUT) if template.end else (LEFT_OUT,)
    return LINE_STOP if prompt.query or prompt.next else block_stops(template)


def block_stops(template: Template) -> tuple[str, ...]:
    return (*STOP, *template.marks)


def aside(room: int) -> int:
    """Tokens of `room` for retrieved blocks and the instruction. A fixed share, so that the rest keeps its room."""
    return room // 8


def fit(pinned: Sequence[int], tail: Sequence[int], asking: int, room: int) -> tuple[list[int], list[int]]:
    """How many tokens of each pinned block and of each block in the tail stay, so that a prompt fits in `room`.

    All numbers are tokens; `asking` is the size of what follows the tail. The pinned blocks may take half of the room,
    in equal shares except for what one does not need, and lose their ends. The tail gets the rest, and loses its oldest
    blocks, in chunks that are counted from the window's first block, so that prompts keep their beginning for many
    blocks and the server's prefix cache serves them. The newest block always stays, if necessary without its end.
    """
    kept, left = [], room // 2
    for number, tokens in enumerate(pinned, 1):
        kept.append(min(tokens, max(left // (len(pinned) - number + 1), left - sum(pinned[number:]))))
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
    """What `fit` left out of the blocks with these indexes, for the column `prompts.cut`."""
    lost = [one for one in zip(indexes, sizes, amounts, strict=True) if one[2] < one[1]]
    return {
        "blocks_left_out": sum(not amount for _, _, amount in lost),
        "blocks_shortened_to": {str(index): amount for index, _, amount in lost if amount},
    }


def without_begun_stop(text: str, stops: tuple[str, ...]) -> str:
    """A text that was cut off, without a possible beginning of a stop string at its end.

    The model will continue the text, and no server finds stop strings across that border.
    """
    begun = {word[:length] for word in stops for length in range(1, len(word))}
    while found := max((word for word in begun if text.endswith(word)), key=len, default=None):
        text = text.removesuffix(found)
    return text


def question_suffix(text: str, question: str) -> str:
    """What follows a context in a question about `text`, the block's body. The answer is the next token."""
    text = text.rstrip("\n")  # as the trace will have it
    return f"{text}\n{prompts.calibration()}#q: {question} "
