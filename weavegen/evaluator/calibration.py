"""How far the evaluator's probabilities can be trusted, and corrections of them. Pure: no database.

Figures are scikit-learn's. It takes a second to import, so it is imported where it is used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weavegen.errors import UsageError
from weavegen.kernel.selection import FLOOR

BINS = 10
FEW = 100
"""Fewer labels than this, or fewer than FEW_OF_A_SIDE true or false ones, and the figures say little."""
FEW_OF_A_SIDE = 10
LEAST_OF_A_SIDE = 20
"""True and false labels that a correction takes at least, each."""
FOLDS = 5
"""Of the cross-validation."""


@dataclass(frozen=True)
class Pair:
    """What the model said of a question's answer, and what it really was."""

    score: float
    """Log odds of yes."""
    answer: bool
    group: int
    """Of pairs that depend on each other: the trace."""


@dataclass(frozen=True)
class Bin:
    """Pairs whose predicted probability is in [low, high)."""

    low: float
    high: float
    labels: int
    predicted: float | None
    """Mean predicted probability; None: there are no pairs."""
    true: float | None
    """Share of answers that really were yes."""


@dataclass(frozen=True)
class Figures:
    """How good the probabilities given for one question are."""

    question: str
    truth: str
    labels: int
    positives: int
    predicted: float
    """Mean predicted probability."""
    brier: float
    """Mean squared error, 0 to 1; the share of true answers alone, always given, has share * (1 - share)."""
    log_loss: float
    """Mean negative log-likelihood, nats; probabilities are kept 1e-9 from 0 and 1."""
    auc: float | None
    """Chance that a true one is given a higher probability than a false one; None where there is one side only."""
    calibration_error: float
    """Mean distance of predicted and true share over the bins, by labels."""
    bins: list[Bin]
    few: bool
    """Too few labels to go by."""


@dataclass(frozen=True)
class Fit:
    """A correction of a question's log odds: `score * slope + intercept` (Platt scaling)."""

    question: str
    slope: float
    intercept: float
    labels: int
    positives: int
    brier_before: float
    brier_after: float
    """Of probabilities corrected by fits to other traces' labels (cross-validation)."""


def probability(score: float) -> float:
    """Of yes, from log odds; as far from 0 and 1 as FLOOR."""
    p = 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
    return min(max(p, FLOOR), 1 - FLOOR)


def figures(question: str, truth: str, pairs: Sequence[Pair]) -> Figures:
    """Reliability of the probabilities given for one question. `pairs` is not empty."""
    from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

    answers = np.array([pair.answer for pair in pairs])
    predicted = np.array([probability(pair.score) for pair in pairs])
    positives = int(answers.sum())
    both = 0 < positives < len(pairs)
    # By counting, not by edges: 0.3 * 10 is not 3 in floating point, but p = 0.3 belongs into the fourth bin.
    places = np.minimum(np.floor(np.round(predicted * BINS, 9)).astype(int), BINS - 1)
    bins = []
    for number in range(BINS):
        inside = places == number
        count = int(inside.sum())
        bins.append(
            Bin(
                low=number / BINS,
                high=(number + 1) / BINS,
                labels=count,
                predicted=float(predicted[inside].mean()) if count else None,
                true=float(answers[inside].mean()) if count else None,
            )
        )
    distances = [one.labels * abs((one.predicted or 0.0) - (one.true or 0.0)) for one in bins]
    return Figures(
        question=question,
        truth=truth,
        labels=len(pairs),
        positives=positives,
        predicted=float(predicted.mean()),
        brier=float(brier_score_loss(answers, predicted)),
        log_loss=float(log_loss(answers, predicted, labels=[False, True])),
        auc=float(roc_auc_score(answers, predicted)) if both else None,
        calibration_error=math.fsum(distances) / len(pairs),
        bins=bins,
        few=len(pairs) < FEW or min(positives, len(pairs) - positives) < FEW_OF_A_SIDE,
    )


def fit(question: str, pairs: Sequence[Pair]) -> Fit:
    """The correction that makes a question's answers likeliest. Raises UsageError where labels are too few.

    The regression is held back a little (C = 100), so that it ends where the scores tell all answers apart.
    """
    from sklearn.model_selection import GroupKFold, KFold

    answers = np.array([pair.answer for pair in pairs], dtype=bool)
    positives = int(answers.sum())
    if min(positives, len(pairs) - positives) < LEAST_OF_A_SIDE:
        raise UsageError(
            f"{question!r} has {positives} true and {len(pairs) - positives} false answers: a correction takes "
            f"{LEAST_OF_A_SIDE} of each"
        )
    scores = np.array([[pair.score] for pair in pairs])
    groups = np.array([pair.group for pair in pairs])
    by_trace = len(set(groups.tolist())) >= FOLDS
    folds = GroupKFold(FOLDS) if by_trace else KFold(FOLDS, shuffle=True, random_state=0)
    corrected = np.empty(len(pairs))
    for rest, out in folds.split(scores, answers, groups if by_trace else None):
        slope, intercept = _line(scores[rest], answers[rest])
        corrected[out] = [probability(slope * score + intercept) for score in scores[out, 0]]
    slope, intercept = _line(scores, answers)
    before = np.array([probability(pair.score) for pair in pairs])
    return Fit(
        question=question,
        slope=slope,
        intercept=intercept,
        labels=len(pairs),
        positives=positives,
        brier_before=float(((before - answers) ** 2).mean()),
        brier_after=float(((corrected - answers) ** 2).mean()),
    )


def _line(scores: "np.ndarray[tuple[int, int], np.dtype[np.float64]]", answers: object) -> tuple[float, float]:
    """Slope and intercept; where the answers are all the same, the slope is 0 and the intercept says so."""
    from sklearn.linear_model import LogisticRegression

    sides = set(np.asarray(answers).tolist())
    if len(sides) == 1:
        return 0.0, math.log(1 / FLOOR) * (1 if sides == {True} else -1)
    model = LogisticRegression(C=100.0, max_iter=1000).fit(scores, answers)
    return float(model.coef_[0][0]), float(model.intercept_[0])
