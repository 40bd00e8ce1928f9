"""From scores to one candidate. Pure functions."""

import math
import random
from collections.abc import Sequence

from weavegen.kernel.steps import Penalties, Verdict, YesNo

FLOOR = 1e-9
"""Probabilities below this count as this: keeps log odds within about ±21."""


def log_odds(answer: YesNo) -> float | None:
    """ln P(yes) - ln P(no) (WEAVE section 5); None where the model gave neither side any mass."""
    if answer.yes <= 0 and answer.no <= 0:
        return None
    return math.log(max(answer.yes, FLOOR)) - math.log(max(answer.no, FLOOR))


def mean_score(answers: Sequence[YesNo]) -> float | None:
    """Mean log odds over the questions; None where no question has a defined score."""
    scores = [score for answer in answers if (score := log_odds(answer)) is not None]
    return sum(scores) / len(scores) if scores else None


def penalised(score: float | None, penalties: Penalties) -> float:
    """The score for selection. An undefined one counts 0. What does not compile loses a score above 4 too."""
    score = score or 0.0
    excess = score if penalties.syntax and score > 4 else 0.0
    return score - excess - penalties.total()


def best(scores: Sequence[float]) -> int:
    """Position of the highest score, the first of equals."""
    return max(range(len(scores)), key=scores.__getitem__)


def draw(scores: Sequence[float], seed: int) -> int:
    """A position, drawn with softmax(scores)."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return random.Random(seed).choices(range(len(scores)), weights)[0]


def accepts(scores: Sequence[float], verdicts: Sequence[Verdict], threshold: float) -> bool:
    """Whether a round's best candidate ends the cascade."""
    top = best(scores)
    return verdicts[top].compiles and scores[top] >= threshold
