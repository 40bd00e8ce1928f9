"""Selection: from the scores of candidates to one of them. Pure."""

import math
import random
from collections.abc import Sequence
from itertools import zip_longest
from typing import Protocol, TypeAlias, TypeVar

from weavegen.kernel.steps import Penalties, YesNo

Line: TypeAlias = tuple[float, float]
"""A correction of log odds: slope and intercept."""
FLOOR = 1e-9
"""The least probability, which keeps log odds within about ±21."""
UNSCORED = -1e6
"""Far below every score minus penalties, and finite, so that sums and softmax stay defined."""


def log_odds(answer: YesNo) -> float | None:
    """ln P(yes) - ln P(no). None: the model gave neither answer any mass."""
    if answer.yes <= 0 and answer.no <= 0:
        return None
    return math.log(max(answer.yes, FLOOR)) - math.log(max(answer.no, FLOOR))


def mean_score(answers: Sequence[YesNo], corrections: Sequence[Line | None] = ()) -> float | None:
    """Mean log odds over the questions, corrected where there is a line. None: no question has a defined score."""
    scores = []
    for answer, line in zip_longest(answers, corrections[: len(answers)]):
        if (score := log_odds(answer)) is not None:
            scores.append(score if line is None else score * line[0] + line[1])
    return sum(scores) / len(scores) if scores else None


def probability(answer: YesNo) -> float | None:
    """P(yes) given that the answer is yes or no. None: the model gave neither answer any mass."""
    mass = answer.yes + answer.no
    return answer.yes / mass if mass > 0 else None


def penalised(score: float | None, penalties: Penalties) -> float:
    """The score for selection. Text that does not compile also loses a score above 4.

    An undefined score counts UNSCORED, so that no candidate without a score is preferred to one with a score.
    """
    score = UNSCORED if score is None else score
    excess = score if penalties.syntax and score > 4 else 0.0
    return score - excess - penalties.total()


def draw(scores: Sequence[float], seed: int) -> int:
    """A position, drawn by softmax(scores)."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return random.Random(seed).choices(range(len(scores)), weights)[0]


def achieved(ran: bool | None, compiles: bool, checks: Sequence[bool] = (), sound: bool = True) -> float:
    """How far a candidate came when it was tried: whether it `ran`, and whether each of the task's evaluations is true.

    0 or 1: it was not tried, and does not compile or does; 0.5: it failed; 1.5: it ran, but is not `sound`, because an
    assertion did not hold or its own evaluation raised; from 2 on: it ran, plus the share of true evaluations.
    """
    if ran is None:
        return float(compiles)
    return (2.0 + sum(checks) / max(len(checks), 1) if sound else 1.5) if ran else 0.5


class Tried(Protocol):
    """A candidate that may have been tried."""

    @property
    def achieved(self) -> float: ...


T = TypeVar("T", bound=Tried)


def furthest(candidates: Sequence[T]) -> list[T]:
    """Those that got furthest when they were tried; all if none ran or failed then."""
    most, tried = max(one.achieved for one in candidates), any(one.achieved not in (0.0, 1.0) for one in candidates)
    return [one for one in candidates if not tried or one.achieved == most]
