"""The reward of a tick, and what of it goes to which block (WEAVE section 9)."""

from collections.abc import Sequence

from weavegen.blocks import Block, BlockType
from weavegen.settings import Settings
from weavegen.steps import Evaluated, Reward

REWARDED = frozenset({BlockType.DEBUG, BlockType.BACKTRACK, BlockType.ACTION, BlockType.ORIENTATION})


def tick_reward(blocks: Sequence[Block], evaluations: Sequence[Evaluated], settings: Settings) -> Reward:
    """Half the share of evaluations that came out true, less a price for each action block, not below 0.

    Given backwards to the tick's reasoning and action blocks, the last one whole, each before it decayed.
    """
    true = sum(evaluated.error is None and evaluated.value is True for evaluated in evaluations)
    actions = sum(block.type is BlockType.ACTION for block in blocks)
    share = true / len(evaluations) if evaluations else 0.0
    reward = max(0.0, 0.5 * share - settings.action_cost * actions)
    shares = {}
    for distance, block in enumerate(b for b in reversed(blocks) if b.type in REWARDED):
        shares[block.index] = reward * settings.reward_decay**distance
    return Reward(reward=reward, shares=shares)
