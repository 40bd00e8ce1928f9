"""Planning: the same tick with nothing executed. The model writes the observations, errors and outcomes."""

import msgspec

from weavegen.agents.program import Part, Tick
from weavegen.agents.write_block import window_of, write_block
from weavegen.kernel.steps import Append, Candidate, Ended, Executed, Failure, Prompt, Sample, View
from weavegen.trace.blocks import SUCCESSORS, Block, BlockType
from weavegen.trace.render import one_line

HEADER_SAMPLES = 16
"""How often the model is asked for the next block's type; the first legal answer counts. As in weave-agent."""


class Imagination:
    """The world as the model imagines it."""

    def begin(self, t: Tick) -> Part[Executed]:
        """Start the tick in the environment, which names its views without running them."""
        begun: Executed = yield t.execute("list")
        return begun

    def observe(self, t: Tick, view: View) -> Part[None]:
        yield from imagine(t, BlockType.OBSERVATION, view.title)

    def execute(self, t: Tick, draft: Append) -> Part[Executed]:
        """Record a block as if it had been executed; the model says whether it failed, and with which error."""
        block = t.append(draft)
        if (yield from next_type(t, block.type)) is not BlockType.ERROR:
            return Executed()
        error = yield from imagine(t, BlockType.ERROR)
        message = one_line(error.body.rpartition("\n")[2])
        return Executed(error=Failure(type="Imagined", message=message, traceback=error.body, stage="callback"))

    def outcome(self, t: Tick, action: Executed | None) -> Part[Ended]:
        """Imagine the outcome. Nothing is known of it, so there is no reward."""
        yield from imagine(t, BlockType.OUTCOME)
        blocks = [block for _, block in t.cursor.recorded]
        acted = next((n for n, block in enumerate(blocks) if block.type is BlockType.ACTION), len(blocks))
        actions = [block for block in blocks[acted:] if block.type in (BlockType.ACTION, BlockType.ERROR)]
        return Ended(done=bool(actions) and "self.return_to_caller(" in actions[-1].body)


def imagine(t: Tick, type: BlockType, title: str | None = None) -> Part[Block]:
    """Have the model write a block that the environment would have written, and record it."""
    written = yield from write_block(t, type, title=title)
    lines = written.append.body.split("\n")
    body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    return t.append(msgspec.structs.replace(written.append, body=body))


def next_type(t: Tick, last: BlockType) -> Part[BlockType | None]:
    """The type of the block that the model expects after one of type `last`; None if no answer is legal."""
    header = f"#subagent {one_line(t.subagent)}\n#startblock type: "
    samples: list[Candidate] = yield Sample(
        prompt=Prompt(type=last, window=window_of(t), header=header, next=True),
        n=HEADER_SAMPLES,
        round=0,
        max_tokens=8,
        temperature=t.settings.temperature,
        top_k=t.settings.top_k,
        repetition_penalty=t.settings.repetition_penalty,
        seed=t.seed("next"),
    )
    return next((type for sample in samples for type in SUCCESSORS[last] if sample.text.strip() == type), None)
