"""What the model read before it wrote: prompts put together again from the journal and the recorded blocks."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from weavegen.kernel import context, prompts
from weavegen.kernel.context import PINNED
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Prompt
from weavegen.store import blocks
from weavegen.trace.blocks import MESSAGE, BlockType

AHEAD = 64
"""Blocks fetched at a time: rows come in the order of blocks, so the next ones will be wanted."""
KEPT = 4
"""Prompts kept as text: candidates of one block read the same one, and scores of them, too."""

STEPS = """
select s.id, s.request -> 'prompt' as prompt, p.first_block, p.cut, p.tokens,
  coalesce(o.settings, j.settings) as settings
from steps s join prompts p on p.step_id = s.id
join ticks k on k.trace_id = s.trace_id and k.number = s.tick and k.run = s.run
join traces t on t.id = s.trace_id join jobs j on j.id = t.job_id
left join job_settings o on o.job_id = j.id and o.revision = k.revision
where s.id = any(cast(:ids as bigint[]))
"""
BLOCKS = """
select index, rendered from blocks where trace_id = :trace and index >= :first and index < :end order by index
"""
TOKENS = """
select index, token_ids::text from block_tokens
where trace_id = :trace and (index < :pinned or (index >= :first and index < :end)) order by index
"""
MESSAGES = f"""
select b.index as at, b.type, coalesce(c.text, b.body) as text from blocks b
left join candidates c on c.id = b.candidate_id
where b.trace_id = :trace and b.index >= :first and b.index < :end
  and b.type in ({", ".join(f"'{type}'" for type in sorted(MESSAGE))}) order by b.index
"""
COUNT = "select array_length(token_ids, 1) from block_tokens where trace_id = :trace and index = :index"
ASKING = "select token_ids::text from prompts where step_id = :step"


END = "\n#endblock\n"
"""What stands behind a body of which nothing was asked."""
TEMPLATE = ("prompt_open", "prompt_close", "message_open", "message_close")
"""The settings that say how the model's template looks."""


@dataclass(frozen=True)
class ModelPrompt:
    """What the model read in a step, up to where it began to write."""

    text: str
    """From the template's opening to the end of the header of the block to come."""
    prefix: str
    """The fixed beginning of the body, which the model read after `text`: `def action_` for example."""
    exact: bool
    """False: a block in it had been shortened to fit the model's length, and where it was cut is known in tokens
    alone; in `text` it is cut at the same share of its characters."""
    tokens: int | None
    """Of `text` without the prefix, as the server counted; None: it did not."""
    window: tuple[int, int]
    """[first, end) of the blocks in it, besides the pinned ones."""
    pinned: int
    """How many of blocks 0 and 1 are in it."""
    shortened: dict[int, int]
    """Tokens that are left of blocks that were shortened, by index."""
    end: str
    """What stands behind a body that the model ended, beginning with what sampling stops at."""
    messages: int | None = None
    """Of a conversation: messages in it; None: it is none."""


@dataclass(frozen=True)
class _Recorded:
    """What the journal says about a step's prompt."""

    prompt: Prompt
    first_block: int
    cut: dict[str, Any]
    tokens: int | None
    settings: Settings


class PromptReader:
    """The prompts of one trace, asked for in the order of its blocks: each block is fetched once, and forgotten
    when the window has passed it. So it holds as much as one prompt, whatever the trace's length."""

    def __init__(self, conn: sa.Connection, trace_id: int) -> None:
        self._conn, self._trace = conn, trace_id
        self._steps: dict[int, _Recorded] = {}
        self._blocks: dict[int, str] = {}
        self._kept: OrderedDict[tuple[Any, ...], ModelPrompt] = OrderedDict()

    def know(self, step_ids: Sequence[int]) -> None:
        """Learn of these steps, and forget those of the last call. A few hundred at a time."""
        self._steps = {}
        for row in self._conn.execute(sa.text(STEPS), {"ids": list(set(step_ids))}):
            if row.prompt is None:
                continue
            prompt = msgspec.convert(row.prompt, Prompt)
            given = {name: row.settings[name] for name in TEMPLATE if name in row.settings}
            self._steps[row.id] = _Recorded(prompt, row.first_block, row.cut or {}, row.tokens, Settings(**given))

    def prompt(self, step_id: int) -> ModelPrompt | None:
        """What the model read in a step of the last `know`.

        None where it can't be told: nothing was recorded, the tick was started over, or blocks have gone.
        """
        step = self._steps.get(step_id)
        if step is None:
            return None
        s = step.settings
        key = (step.prompt, step.first_block, msgspec.json.encode(step.cut), s.prompt_open, s.message_open)
        if key not in self._kept:
            found = self._conversation(step) if step.prompt.type in MESSAGE else self._put_together(step)
            if found is None:
                return None
            self._kept[key] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def token_ids(self, step_id: int) -> list[int] | None:
        """Ids of the prompt's `text` and `prefix`, as the server was sent them; None: not all were recorded."""
        prompt = self.prompt(step_id)
        if prompt is None:
            return None
        first, end = prompt.window
        wanted = {"trace": self._trace, "pinned": prompt.pinned, "first": first, "end": end}
        asking = self._conn.execute(sa.text(ASKING), {"step": step_id}).scalar_one_or_none()
        rows = self._conn.execute(sa.text(TOKENS), wanted).all()
        blocks = end - first if prompt.messages is None else prompt.messages
        if asking is None or len(rows) != prompt.pinned + blocks:
            return None
        found: list[int] = []
        for index, text in rows:
            ids = numbers(text)
            found += ids[: prompt.shortened.get(index, len(ids))]
        found += numbers(asking)
        # An older corpus may lack the ids of the prefix.
        return None if prompt.prefix and len(found) == prompt.tokens else found

    def _conversation(self, step: _Recorded) -> ModelPrompt | None:
        first, end = step.prompt.window
        values = {"trace": self._trace, "first": first, "end": end}
        found = self._conn.execute(sa.text(MESSAGES), values).all()
        if not found or found[-1].at >= end:
            return None
        s, type = step.settings, step.prompt.type
        text = "".join(context.spoken(BlockType(row.type), row.text, s) for row in found) + context.opening(
            type, s
        )
        window = (found[0].at, end)
        return ModelPrompt(text, "", True, step.tokens, window, 0, {}, s.message_close.strip(), len(found))

    def _put_together(self, step: _Recorded) -> ModelPrompt | None:
        prompt, cut = step.prompt, step.cut
        first, end = prompt.window
        window = (step.first_block, end)
        # What was left out is counted together: of the tail it is the oldest, of the pinned ones the second.
        pinned = min(PINNED, end) - (int(cut.get("blocks_left_out", 0)) - (step.first_block - first))
        indexes = [*range(pinned), *range(*window)]
        if not (0 <= pinned <= PINNED and self._fetch(indexes, first)):
            return None
        opening = step.settings.prompt_open
        texts = {index: opening + self._blocks[index] if index == 0 else self._blocks[index] for index in indexes}
        shortened = {int(index): int(tokens) for index, tokens in cut.get("blocks_shortened_to", {}).items()}
        recalled = blocks.recalled(self._conn, prompt.recalled)
        recalled = recalled[: len(recalled) - int(cut.get("retrieved_left_out", 0))]
        for index, tokens in shortened.items():
            if index in texts:
                texts[index] = texts[index][: self._characters(index, tokens, texts[index])]
        text = "".join(texts.values()) + context.retrieved(recalled) + context.asked(prompt, step.settings)
        # As in the blocks that the model reads: there no body is followed by its `#endblock`.
        behind = f"\n#q: {prompts.questions(prompt.type)[0]} "
        return ModelPrompt(text, prompt.prefix, not shortened, step.tokens, window, pinned, shortened, behind)

    def _characters(self, index: int, tokens: int, text: str) -> int:
        """About how many characters of a block its first `tokens` tokens are."""
        values = {"trace": self._trace, "index": index}
        whole = self._conn.execute(sa.text(COUNT), values).scalar_one_or_none()
        return len(text) * tokens // whole if whole else 4 * tokens

    def _fetch(self, indexes: Sequence[int], first: int) -> bool:
        """Have these blocks at hand, and forget those that no later window reaches. False: some have gone."""
        for index in [index for index in self._blocks if PINNED <= index < first]:
            del self._blocks[index]
        missing = [index for index in indexes if index not in self._blocks]
        for start, stop in spans(missing):
            values = {"trace": self._trace, "first": start, "end": max(stop, start + AHEAD) if start else stop}
            rows: Sequence[Any] = self._conn.execute(sa.text(BLOCKS), values).all()
            self._blocks.update((row.index, row.rendered) for row in rows)
        return all(index in self._blocks for index in missing)


def spans(indexes: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as spans [first, end) without holes."""
    found: list[tuple[int, int]] = []
    for index in indexes:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def numbers(array: str) -> list[int]:
    """A PostgreSQL array of whole numbers, as text: psycopg would make each of thousands by itself."""
    return msgspec.json.decode(f"[{array[1:-1]}]", type=list[int])


def reals(array: str) -> list[float]:
    """A PostgreSQL array of numbers, as text. It may have NaN and infinities, which JSON has not."""
    return [float(one) for one in array[1:-1].split(",")] if array != "{}" else []
