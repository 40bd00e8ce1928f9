"""The rewards of a tick, and what of them goes to which block (WEAVE section 9)."""

from collections.abc import Sequence

from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Append, Evaluated, Reward
from weavegen.trace.blocks import CALLBACK, Block, BlockType

REASONING = frozenset({BlockType.ORIENTATION, BlockType.DEBUG, BlockType.BACKTRACK})
REWARDED = REASONING | {BlockType.ACTION}
BLAME = {"AssertionError": 0.25, "AttributeError": 1.0}
"""What a block loses that failed, by the exception: an AttributeError is an invented method. Others: 0.5."""
Recorded = Sequence[tuple[Append, Block]]
"""A tick's drafts and the blocks they became, in order."""


def reward(recorded: Recorded, evaluations: Sequence[Evaluated], settings: Settings) -> Reward:
    """Half the share of evaluations that came out true, less a price for each action block, not below 0.

    Given backwards to the tick's reasoning and action blocks, the last one whole, each before it decayed.
    """
    blocks = [block for _, block in recorded]
    true = sum(evaluated.error is None and evaluated.value is True for evaluated in evaluations)
    actions = sum(block.type is BlockType.ACTION for block in blocks)
    share = true / len(evaluations) if evaluations else 0.0
    total = max(0.0, 0.5 * share - settings.action_cost * actions)
    shares = {}
    for distance, block in enumerate(b for b in reversed(blocks) if b.type in REWARDED):
        shares[block.index] = total * settings.reward_decay**distance
    return Reward(reward=total, shares=shares, preferences=preferences(recorded))


def preferences(recorded: Recorded) -> dict[int, float]:
    """What preference data adds to the scores of callback blocks that failed, and of the reasoning before them.

    Reasoning that led to a block which ran gains the more, the less it was thought of; reasoning that led to one
    which failed loses the more, the more it was thought of.
    """
    given: dict[int, float] = {}
    reasons: list[tuple[int, float]] = []
    why: list[tuple[int, float]] = []
    carried_out: int | None = None
    for draft, block in recorded:
        if block.type in REASONING:
            reasons.append((block.index, draft.score or 0.0))
            continue
        if block.type in CALLBACK:
            carried_out, why, reasons = block.index, reasons, []
        elif block.type is not BlockType.RETURN or carried_out is None:  # a return says how its caller went on
            continue
        if draft.ran is True:
            given |= {index: gain(score) for index, score in why}
        elif draft.ran is False or not draft.compiles:
            given |= {index: -loss(score) for index, score in why}
            given[carried_out] = -BLAME.get(draft.exception or "", 0.5)
    return given


def gain(score: float) -> float:
    """Of reasoning before a block that ran."""
    return 0.2 if score < 2 else 0.1 if score < 3 else 0.01 if score < 4 else 0.001 if score < 5 else 0.0


def loss(score: float) -> float:
    """Of reasoning before a block that failed."""
    if score <= 2:
        return 0.1
    return 0.1 + 0.1 * (score - 2) if score <= 3 else 0.2 + 0.1 * (score - 3)
