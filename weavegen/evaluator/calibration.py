"""How far the evaluator's probabilities can be trusted, and corrections of them. Pure: no database.

scikit-learn takes a second to import, so it is imported where it is used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weavegen.errors import UsageError
from weavegen.kernel.selection import FLOOR

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BINS = 10
FEW = 100
"""Figures from fewer labels, or from fewer than FEW_OF_A_SIDE true or false ones, are marked `few`."""
FEW_OF_A_SIDE = 10
MIN_OF_A_SIDE = 20
"""True labels, and false labels, that a correction needs."""
FOLDS = 5
"""Folds of the cross-validation."""


@dataclass(frozen=True)
class Pair:
    """The model's score for a question, and the right answer."""

    score: float
    """Log odds of yes."""
    answer: bool
    group: int
    """The trace. Pairs of one trace depend on each other."""


@dataclass(frozen=True)
class Bin:
    """Pairs whose predicted probability is in [low, high)."""

    low: float
    high: float
    labels: int
    predicted: float | None
    """Mean predicted probability; None for an empty bin."""
    true: float | None
    """Share of yes among the right answers; None for an empty bin."""


@dataclass(frozen=True)
class Figures:
    """Quality of the probabilities for one question."""

    question: str
    truth: str
    labels: int
    positives: int
    predicted: float
    """Mean predicted probability."""
    brier: float
    """Mean squared error, 0 to 1. Always predicting the share of yes gives share * (1 - share)."""
    log_loss: float
    """Mean negative log-likelihood in nats. Probabilities are kept FLOOR away from 0 and 1."""
    auc: float | None
    """Probability that a true answer is ranked above a false one; None if all answers are the same."""
    calibration_error: float
    """Mean distance between predicted and true share over the bins, weighted by labels."""
    bins: list[Bin]
    few: bool
    """There are too few labels to rely on the figures."""


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
    """Cross-validated: each label is predicted by a fit to the labels of other traces."""


def probability(score: float) -> float:
    """Probability of yes from log odds, at least FLOOR away from 0 and 1."""
    return min(max((1 + math.tanh(score / 2)) / 2, FLOOR), 1 - FLOOR)


def figures(question: str, truth: str, pairs: Sequence[Pair]) -> Figures:
    """Reliability of the probabilities for one question. `pairs` is not empty."""
    import numpy as np
    from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

    answers = np.array([pair.answer for pair in pairs])
    predicted = np.array([probability(pair.score) for pair in pairs])
    positives = int(answers.sum())
    # Rounded first, so that p = 0.3 is in the fourth bin. scikit-learn's calibration_curve puts it into the third.
    places = np.minimum(np.floor(np.round(predicted * BINS, 9)).astype(int), BINS - 1)
    labels, sums, trues = (np.bincount(places, weights, BINS) for weights in (None, predicted, answers))
    bins = []
    for n, count in enumerate(labels.tolist()):
        predicted_mean, true = (float(sums[n]) / count, float(trues[n]) / count) if count else (None, None)
        bins.append(Bin(n / BINS, (n + 1) / BINS, int(count), predicted_mean, true))
    return Figures(
        question=question,
        truth=truth,
        labels=len(pairs),
        positives=positives,
        predicted=float(predicted.mean()),
        brier=float(brier_score_loss(answers, predicted)),
        log_loss=float(log_loss(answers, predicted, labels=[False, True])),
        auc=float(roc_auc_score(answers, predicted)) if 0 < positives < len(pairs) else None,
        calibration_error=float(np.abs(sums - trues).sum() / len(pairs)),
        bins=bins,
        few=len(pairs) < FEW or min(positives, len(pairs) - positives) < FEW_OF_A_SIDE,
    )


def fit(question: str, pairs: Sequence[Pair]) -> Fit:
    """The most likely correction of a question's log odds. Raises UsageError if there are too few labels.

    The regression is slightly regularised (C = 100), so that it converges even if the scores separate all answers.
    """
    import numpy as np
    from sklearn.metrics import brier_score_loss
    from sklearn.model_selection import GroupKFold, KFold

    answers = np.array([pair.answer for pair in pairs], dtype=bool)
    positives = int(answers.sum())
    if min(positives, len(pairs) - positives) < MIN_OF_A_SIDE:
        raise UsageError(
            f"{question!r} has {positives} true and {len(pairs) - positives} false answers: a correction takes "
            f"{MIN_OF_A_SIDE} of each"
        )
    scores = np.array([pair.score for pair in pairs])
    groups = np.array([pair.group for pair in pairs])
    by_trace = len(set(groups.tolist())) >= FOLDS
    folds = GroupKFold(FOLDS) if by_trace else KFold(FOLDS, shuffle=True, random_state=0)
    corrected = np.empty(len(pairs))
    for train, test in folds.split(scores, answers, groups if by_trace else None):
        slope, intercept = _line(scores[train], answers[train])
        corrected[test] = [probability(slope * score + intercept) for score in scores[test]]
    slope, intercept = _line(scores, answers)
    return Fit(
        question=question,
        slope=slope,
        intercept=intercept,
        labels=len(pairs),
        positives=positives,
        brier_before=float(brier_score_loss(answers, [probability(score) for score in scores])),
        brier_after=float(brier_score_loss(answers, corrected)),
    )


def _line(scores: "npt.NDArray[np.float64]", answers: "npt.NDArray[np.bool_]") -> tuple[float, float]:
    """Slope and intercept of a logistic regression. If all answers are the same, the slope is 0."""
    from sklearn.linear_model import LogisticRegression

    if answers.all() or not answers.any():
        return 0.0, math.log(1 / FLOOR) * (1 if answers.all() else -1)
    model = LogisticRegression(C=100.0, max_iter=1000).fit(scores[:, None], answers)
    return float(model.coef_[0][0]), float(model.intercept_[0])
