"""What the model reads: which blocks are in the window, and how a prompt is put together."""

from collections.abc import Sequence

from weavegen import prompts
from weavegen.blocks import BlockType
from weavegen.settings import Settings
from weavegen.steps import Prompt

STOP = ("#endblock", "#startblock", "\n#q: ", "\n# q:", "</s>", "[/INST]")
"""Where a continuation ends (WEAVE section 4). The first four are the server's to stop at: vLLM takes no more."""

QUERY_STOP = ("\n", "#endblock", "#startblock")
"""Where a BM25 query ends: it is one line of the header."""

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
    parts = [s.prompt_open, *pinned, *tail]
    if recalled:
        parts.append("# START RETRIEVED BLOCKS\n")
        for number, (type, text) in enumerate(recalled, 1):
            parts.append(f"# Retrieved block {number}:\n{_comment_out(type, text)}")
        parts.append("# END RETRIEVED BLOCKS\n\n")
    instruction = prompts.query_instruction(prompt.type) if prompt.query else prompts.instruction(prompt.type)
    parts += [instruction, s.prompt_close, "\n", prompt.header]
    return "".join(parts)


def _comment_out(type: BlockType, text: str) -> str:
    marked = text.replace(f"#startblock type: {type}\n", f"#startblock type: recalled-{type}\n", 1)
    return "".join(f"# {line}\n" for line in marked.rstrip("\n").split("\n"))


def question_suffix(text: str, question: str) -> str:
    """What follows a context to ask about `text`, the block's body: the answer is the next token."""
    text = text.rstrip("\n")  # as the trace will have it
    return f"{text}\n{prompts.calibration()}#q: {question} "
