"""The reward of a tick, and its shares that go to blocks (docs/weave.md, "Rewards")."""

from collections.abc import Sequence

from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Append, Evaluated, Reward
from weavegen.trace.blocks import CALLBACK, Block, BlockType

REASONING = frozenset({BlockType.ORIENTATION, BlockType.DEBUG, BlockType.BACKTRACK})
REWARDED = REASONING | {BlockType.ACTION}
BLAME = {"AssertionError": 0.25, "AttributeError": 1.0}
"""Amounts that a failed block loses, by exception; others: 0.5. AttributeError: the model invented a method."""
Recorded = Sequence[tuple[Append, Block]]
"""A tick's drafts with the blocks that they became, in order."""


def reward(recorded: Recorded, evaluations: Sequence[Evaluated], settings: Settings) -> Reward:
    """Half the fraction of true evaluations, less `action_cost` for each action block, at least 0.

    If there are protected evaluations, only these count. Those that were not evaluated are left out; if none was
    evaluated, there is no reward. The tick's last reasoning or action block gets the whole reward. Each block
    before it gets the share of its successor times `reward_decay`.
    """
    protected = [evaluated for evaluated in evaluations if evaluated.protected]
    counted = [evaluated for evaluated in protected or evaluations if evaluated.cause is None]
    left_out = len(protected or evaluations) - len(counted)
    blocks = [block for _, block in recorded]
    true = sum(evaluated.error is None and evaluated.value is True for evaluated in counted)
    actions = sum(block.type is BlockType.ACTION for block in blocks)
    share = true / len(counted) if counted else 0.0
    total = None if left_out and not counted else max(0.0, 0.5 * share - settings.action_cost * actions)
    decay, last_first = settings.reward_decay, [block for block in reversed(blocks) if block.type in REWARDED]
    shares = {} if total is None else {block.index: total * decay**n for n, block in enumerate(last_first)}
    preferred, only_protected = preferences(recorded), bool(protected)
    return Reward(reward=total, shares=shares, preferences=preferred, protected=only_protected, not_evaluated=left_out)


def preferences(recorded: Recorded) -> dict[int, float]:
    """Corrections to scores in preference data, by block index: for failed callback blocks and for reasoning.

    Reasoning before a block that ran gains; the lower its score, the more. Reasoning before a block that failed
    loses; the higher its score, the more.
    """
    corrections: dict[int, float] = {}
    reasoning: list[tuple[int, float]] = []
    reasoning_before: list[tuple[int, float]] = []
    callback: int | None = None
    for draft, block in recorded:
        if block.type in REASONING:
            reasoning.append((block.index, draft.score or 0.0))
            continue
        if block.type in CALLBACK:
            callback, reasoning_before, reasoning = block.index, reasoning, []
        elif block.type is not BlockType.RETURN or callback is None:  # a return block has its caller's result
            continue
        if draft.ran is True:
            corrections |= {index: gain(score) for index, score in reasoning_before}
        elif draft.ran is False or not draft.compiles:
            corrections |= {index: -loss(score) for index, score in reasoning_before}
            corrections[callback] = -BLAME.get(draft.exception or "", 0.5)
    return corrections


def gain(score: float) -> float:
    """The amount that reasoning with this score gains before a block that ran."""
    return 0.2 if score < 2 else 0.1 if score < 3 else 0.01 if score < 4 else 0.001 if score < 5 else 0.0


def loss(score: float) -> float:
    """The amount that reasoning with this score loses before a block that failed."""
    if score <= 2:
        return 0.1
    return 0.1 + 0.1 * (score - 2) if score <= 3 else 0.2 + 0.1 * (score - 3)
