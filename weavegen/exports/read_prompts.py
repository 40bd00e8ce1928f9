"""Reads the prompts of steps: puts them together again from the journal and the recorded blocks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import msgspec

from weavegen import sql
from weavegen.database import Connection
from weavegen.kernel import context, prompts
from weavegen.kernel.context import PINNED
from weavegen.kernel.replay import encode
from weavegen.kernel.steps import Prompt
from weavegen.kernel.template import PLAIN, Template, reply_after
from weavegen.store import blocks
from weavegen.trace.blocks import MESSAGE, BlockType

FETCHED_AHEAD = 64
"""Blocks fetched at a time: rows come in the order of blocks, so the next ones will be needed."""
CACHED_PROMPTS = 4
"""Prompts kept as text: the candidates of a block share one, and so do their scores."""

END = "\n#endblock\n"
"""Follows the body of a block without a question."""


@dataclass(frozen=True)
class ModelPrompt:
    """What the model read in a step before it wrote."""

    text: str
    """From the template's opening to the end of the header of the block to be written."""
    prefix: str
    """The fixed beginning of the body, which the model read after `text`, for example `def action_`."""
    exact: bool
    """False: a block in it was shortened to fit the model's length, whose place is known in tokens: `text` is cut after
    the same share of the block's characters. Or a chat API applied a template of its own to a conversation."""
    tokens: int | None
    """Tokens of `text` without the prefix, as the server counted; None: it did not."""
    window: tuple[int, int]
    """[first, end) of its blocks except the pinned ones."""
    pinned: int
    """How many of blocks 0 and 1 are in it."""
    shortened: dict[int, int]
    """Tokens left of shortened blocks, by index."""
    end: str
    """Follows a body that the model ended. It begins with the text that stops sampling."""
    messages: int | None = None
    """Number of messages in a conversation's prompt; None for other prompts."""


class Piece(NamedTuple):
    """Consecutive tokens of a prompt, which were tokenised together."""

    kind: str
    """The type of the block that they are; `prompt`: text that is in no block."""
    at: int
    """Index of the block; of text in no block: of the block to be written."""
    ids: list[int]


@dataclass(frozen=True)
class _Recorded:
    """What the journal says about a step's prompt."""

    prompt: Prompt
    first_block: int
    cut: bytes
    """What was left out for lack of room, as JSON."""
    tokens: int | None
    template: Template
    """PLAIN itself where none was recorded."""


class PromptReader:
    """The prompts of one trace, read in the order of its blocks.

    Each block is fetched once and dropped when the window has passed it, so memory holds one prompt, whatever the
    trace's length.
    """

    def __init__(self, conn: Connection, trace_id: int, template: Template | None = None) -> None:
        """`template`: in place of the one that the writer read, for another model."""
        self._conn, self._trace, self._template = conn, trace_id, template
        self._steps: dict[int, _Recorded] = {}
        self._blocks: dict[int, str] = {}
        self._prompt = lru_cache(CACHED_PROMPTS)(self._put_together)

    def load(self, step_ids: Sequence[int]) -> None:
        """Load what is recorded about these steps, at most a few hundred, and drop those of the last call."""
        self._steps = {}
        for row in sql.run(self._conn, "exports/prompt-steps", ids=list(set(step_ids))):
            if row.prompt is None:
                continue
            prompt = msgspec.convert(row.prompt, Prompt)
            recorded = PLAIN if row.template is None else msgspec.convert(row.template, Template)
            template = self._template or recorded
            self._steps[row.id] = _Recorded(prompt, row.first_block, encode(row.cut or {}), row.tokens, template)

    def prompt(self, step_id: int) -> ModelPrompt | None:
        """The prompt of a step that was loaded.

        None where it is unknown: it was not recorded, the tick was restarted, or blocks are gone.
        """
        step = self._steps.get(step_id)
        return None if step is None else self._prompt(step)

    def _put_together(self, step: _Recorded) -> ModelPrompt | None:
        return self._conversation(step) if step.prompt.type in MESSAGE else self._block_prompt(step)

    def token_pieces(self, step_id: int) -> list[Piece] | None:
        """The ids of `text` and `prefix` as the server received them, in pieces; None: not all were recorded."""
        prompt = self.prompt(step_id)
        if prompt is None:
            return None
        first, end = prompt.window
        parameters = {"trace": self._trace, "pinned": prompt.pinned, "first": first, "end": end}
        header = sql.run(self._conn, "exports/prompt-header-tokens", step=step_id).scalar_one_or_none()
        rows = sql.run(self._conn, "exports/prompt-tokens", **parameters).all()
        blocks = end - first if prompt.messages is None else prompt.messages
        if header is None or len(rows) != prompt.pinned + blocks:
            return None
        pieces = [Piece(row.type, row.at, integers(row.token_ids)[: prompt.shortened.get(row.at)]) for row in rows]
        pieces.append(Piece("prompt", end, integers(header)))
        # An older corpus may lack the ids of the prefix.
        return None if prompt.prefix and sum(len(piece.ids) for piece in pieces) == prompt.tokens else pieces

    def _conversation(self, step: _Recorded) -> ModelPrompt | None:
        first, end = step.prompt.window
        parameters = {"trace": self._trace, "first": first, "end": end, "types": [str(type) for type in MESSAGE]}
        rows = sql.run(self._conn, "exports/prompt-messages", **parameters).all()
        if not rows or rows[-1].at >= end:
            return None
        types = [BlockType(row.type) for row in rows]
        before = zip(rows, types, [None, *types], strict=False)
        read = (step.template, step.template.read_again)
        spoken = []
        for row, type, after in before:
            template, said = read[row.sampled], row.text
            if self._template is not None and type is BlockType.ASSISTANT:
                said = reply_after(template.reply_open, said)
            spoken.append(context.spoken(type, said, template, after))
        text = "".join(spoken) + context.opening(step.prompt.type, step.template, types[-1])
        exact = self._template is not None or step.template is not PLAIN  # else the server applied its own
        return ModelPrompt(text, "", exact, step.tokens, (rows[0].at, end), 0, {}, step.template.end, len(rows))

    def _block_prompt(self, step: _Recorded) -> ModelPrompt | None:
        prompt, cut = step.prompt, msgspec.json.decode(step.cut)
        first, end = prompt.window
        window = (step.first_block, end)
        # blocks_left_out counts the oldest blocks of the window, and after them the second pinned block.
        pinned = min(PINNED, end) - (int(cut.get("blocks_left_out", 0)) - (step.first_block - first))
        indexes = [*range(pinned), *range(*window)]
        if not (0 <= pinned <= PINNED and self._fetch(indexes, first)):
            return None
        texts = {index: context.unmarked(self._blocks[index], step.template) for index in indexes}
        texts |= {0: step.template.block_open + texts[0]} if 0 in texts else {}
        shortened = {int(index): int(tokens) for index, tokens in cut.get("blocks_shortened_to", {}).items()}
        for index, tokens in shortened.items():
            if index in texts:
                length = sql.run(self._conn, "exports/prompt-block-length", trace=self._trace, index=index)
                counted = length.scalar_one_or_none()
                # About as many characters as the first `tokens` tokens are.
                texts[index] = texts[index][: len(texts[index]) * tokens // counted if counted else 4 * tokens]
        hits = blocks.retrieved_texts(self._conn, prompt.recalled)
        if len(hits) < len(prompt.recalled):
            return None
        hits = hits[: len(hits) - int(cut.get("retrieved_left_out", 0))]
        shown = context.unmarked(context.retrieved(hits), step.template)
        text = "".join(texts.values()) + shown + context.asked(prompt, step.template)
        # In the blocks that the model reads, a body is followed by its question, not by `#endblock`.
        body_end = f"\n#q: {prompts.questions(prompt.type)[0]} "
        return ModelPrompt(text, prompt.prefix, not shortened, step.tokens, window, pinned, shortened, body_end)

    def _fetch(self, indexes: Sequence[int], first: int) -> bool:
        """Fetch these blocks, and drop those before `first`, which no later window has. False: some are gone."""
        for index in [index for index in self._blocks if PINNED <= index < first]:
            del self._blocks[index]
        missing = [index for index in indexes if index not in self._blocks]
        if missing:
            ahead = range(missing[-1] + 1, missing[-1] + FETCHED_AHEAD)
            rows = sql.run(self._conn, "exports/prompt-blocks", trace=self._trace, indexes=[*missing, *ahead])
            self._blocks.update(rows.all())
        return all(index in self._blocks for index in missing)


def integers(array: str) -> list[int]:
    """A PostgreSQL array of integers as text. psycopg would convert thousands of elements one by one."""
    return msgspec.json.decode(f"[{array[1:-1]}]", type=list[int])


def reals(array: str) -> list[float]:
    """A PostgreSQL array of floats as text. It may contain NaN and infinities, which JSON does not have."""
    return [float(number) for number in array[1:-1].split(",")] if array != "{}" else []
