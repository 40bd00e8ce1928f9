"""Scripted policies. The prompt decides which policy writes.

The texts of a policy depend on the seed, the candidate's number and the content of the situation, never on times,
indices or the order of requests: the same seed gives the same trace again.
"""

import math
from typing import Protocol

from simulation.policies import (
    conversation,
    dialogue,
    dream,
    generic,
    nano,
    nethack,
    pieces,
    reader,
    story,
    sums,
    survivor,
    tictactoe,
    toolsmith,
    vigenere,
)
from simulation.policies.situation import Situation


class Policy(Protocol):
    """A module that plays one kind of bootstrap."""

    def knows(self, situation: Situation) -> bool:
        """Whether the prompt is about this policy's task."""
        ...

    def write(self, situation: Situation, seed: int, number: int) -> str:
        """The continuation of candidate `number`, before it is cut at stop strings."""
        ...

    def log_odds(self, situation: Situation) -> float:
        """ln(p/(1-p)) of the answer yes to the question at the end of the prompt."""
        ...


_POLICIES: tuple[Policy, ...] = (
    toolsmith.judge,
    conversation,
    nano,
    nethack,
    sums,
    survivor,
    tictactoe,
    vigenere,
    story,
    reader,
    generic,
)
"""The first policy that knows the prompt writes. The last one knows every prompt."""


def _policy(situation: Situation) -> Policy:
    return next(policy for policy in _POLICIES if policy.knows(situation))


def write(situation: Situation, seed: int, number: int) -> str:
    """The continuation of candidate `number`."""
    if (chat := dialogue.read(situation.prompt)) is not None:
        return dialogue.write(chat, seed, number)
    if situation.type == "bm25-query":
        return generic.query(situation, seed, number) + "\n"
    if situation.type == "next-type":
        return dream.next_type(situation, seed, number)
    if situation.type in dream.TYPES:
        return dream.write(situation, seed, number)
    return pieces.write(situation, seed, number, _policy(situation).write)


def answer(situation: Situation) -> float:
    """Probability of yes to the question at the end of the prompt."""
    return 1 / (1 + math.exp(-_policy(situation).log_odds(situation)))
