"""Continues half-written blocks, as tree search requests them."""

from collections.abc import Callable
from dataclasses import replace

from simulation.policies.draft import ENDING
from simulation.policies.situation import Situation
from weavegen.kernel import prompts
from weavegen.trace.blocks import PROSE, BlockType

TRIES = 200
"""Number of drafts that are compared with the half-written block. If no draft begins like it, the block ends."""
_FUNCTIONS = {"action": "def action_", "evaluation": "def eval_"}


def opening(situation: Situation) -> str:
    """The fixed beginning of the body, which is in the prompt before the draft."""
    if situation.type not in PROSE:
        begins = [_FUNCTIONS.get(situation.type, "")]
    else:
        begins = [f'"""{stem}' for stem in (*prompts.stems(BlockType(situation.type)), "")]
    return next((text for text in begins if situation.body.startswith(text)), situation.body)


def write(situation: Situation, seed: int, number: int, policy: Callable[[Situation, int, int], str]) -> str:
    """The continuation by `policy`, also of a half-written block, as if the policy had written its beginning."""
    begun = opening(situation)
    if begun == situation.body:
        return policy(situation, seed, number)
    whole = replace(situation, body=begun)
    first = situation.chance(seed, number).getrandbits(48)
    written = situation.body.removeprefix(begun)
    drafts = (policy(whole, first + attempt, number) for attempt in range(TRIES))
    return next((draft.removeprefix(written) for draft in drafts if draft.startswith(written)), ENDING)
