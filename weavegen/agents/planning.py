"""Planning: the world's part of a tick, written by the model (WEAVE section 11). Nothing is executed."""

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.agents.write_block import window_of, write_block
from weavegen.kernel.steps import Append, Candidate, Ended, Executed, Failure, Prompt, Sample
from weavegen.trace.blocks import SUCCESSORS, Block, BlockType
from weavegen.trace.render import one_line

HEADERS = 16
"""Times that the model is asked which block comes next; the first legal answer counts."""


def imagine(t: Tick, type: BlockType, title: str | None = None) -> Part[Block]:
    """A block that the world would have written: an observation, an error, an outcome."""
    written = yield from write_block(t, type, title=title)
    lines = written.append.body.split("\n")
    body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    block: Block = yield msgspec.structs.replace(written.append, body=body)
    return block


def carry_out(t: Tick, draft: Append) -> Part[Executed]:
    """Record a block as if it had been executed; whether it failed, and how, is the model's to say."""
    block: Block = yield draft
    if (yield from next_type(t, block.type)) is not BlockType.ERROR:
        return Executed()
    error = yield from imagine(t, BlockType.ERROR)
    message = one_line(error.body.rpartition("\n")[2])
    return Executed(error=Failure(type="Imagined", message=message, traceback=error.body, stage="callback"))


def outcome(t: Tick) -> Part[Ended]:
    """The outcome as the model imagines it. Nothing is known, so nothing is rewarded."""
    yield from imagine(t, BlockType.OUTCOME)
    blocks = [block for _, block in t.cursor.recorded]
    acted = next((number for number, block in enumerate(blocks) if block.type is BlockType.ACTION), len(blocks))
    actions = [block for block in blocks[acted:] if block.type in (BlockType.ACTION, BlockType.ERROR)]
    done = bool(actions) and "self.return_to_caller(" in actions[-1].body
    return Ended(done=done)


def next_type(t: Tick, last: BlockType) -> Part[BlockType | None]:
    """Which block the model expects after one of type `last`; None if it names none that may follow."""
    samples: list[Candidate] = yield Sample(
        prompt=Prompt(
            type=last,
            window=window_of(t),
            header=f"#subagent {one_line(t.subagent)}\n#startblock type: ",
            next=True,
        ),
        n=HEADERS,
        round=0,
        max_tokens=8,
        temperature=t.settings.temperature,
        top_k=t.settings.top_k,
        repetition_penalty=t.settings.repetition_penalty,
        seed=t.seed("next"),
    )
    return next((type for one in samples for type in SUCCESSORS[last] if one.text.strip() == type), None)
