"""Blocks that a prompt holds half-written, as a tree search writes them: the simulation goes on from there."""

from collections.abc import Callable
from dataclasses import replace

from simulation.policies.draft import ENDING
from simulation.policies.situation import Situation
from weavegen.kernel import prompts
from weavegen.trace.blocks import PROSE, BlockType

TRIES = 200
"""Drafts that are compared with what the prompt has; where none begins so, the block just ends."""
_FUNCTIONS = {"action": "def action_", "evaluation": "def eval_"}


def opening(situation: Situation) -> str:
    """How every body of the type begins, as far as the prompt has it: where a draft begins."""
    if situation.type not in PROSE:
        begins = [_FUNCTIONS.get(situation.type, "")]
    else:
        begins = [f'"""{stem}' for stem in (*prompts.stems(BlockType(situation.type)), "")]
    return next((text for text in begins if situation.body.startswith(text)), situation.body)


def write(situation: Situation, seed: int, number: int, policy: Callable[[Situation, int, int], str]) -> str:
    """What `policy` goes on with; where a block is half-written, as if it had written that part, too."""
    begun = opening(situation)
    if begun == situation.body:
        return policy(situation, seed, number)
    whole = replace(situation, body=begun)
    first = situation.chance(seed, number).getrandbits(48)
    said = situation.body.removeprefix(begun)
    drafts = (policy(whole, first + attempt, number) for attempt in range(TRIES))
    return next((draft.removeprefix(said) for draft in drafts if draft.startswith(said)), ENDING)
