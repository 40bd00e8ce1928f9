"""How well a model works as an agent: measured on traces that were written for it, with 95% intervals.

The same tasks are done under two settings. `selected` is the agent as usual: many candidates, of which the
evaluator selects one. `unaided` executes the first candidate of each block, whatever the evaluator says. It shows
what the model writes by itself, and gives the evaluator wrong blocks to judge.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

from weavegen import sql
from weavegen.database import Connection
from weavegen.evaluator.calibration import Figures, Pair, figures
from weavegen.evaluator.rubrics import WILL_RUN

SETTINGS: dict[str, dict[str, Any]] = {
    "selected": {},
    "unaided": {"search": "cascade", "rounds": [1], "backtrack_below": -1000.0, "all_questions": True, "wordings": 1},
}
"""Settings of the two jobs that differ from the defaults."""
HELD_OUT = 1_000_000
"""Seeds from here on are for evaluation. Jobs that make training data take lower ones."""
RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Measure:
    """A share or a mean with its confidence interval [low, high]."""

    value: float
    low: float
    high: float
    of: int
    """Number of traces."""


@dataclass(frozen=True)
class Evaluation:
    """The measurements of one model."""

    model: str
    success: dict[str, Measure]
    """By bootstrap: share of traces that returned with all evaluations of their task true (selected)."""
    legal: Measure
    """Share of candidates that compile (unaided)."""
    ran: Measure
    """Share of executed blocks that ran without an error (unaided)."""
    candidates_per_block: Measure
    """Sampled candidates for each block of the `sft` export (selected)."""
    tokens_per_block: Measure
    """Sampled tokens for each block of the `sft` export (selected)."""
    evaluator: Figures | None
    """Figures of the question WILL_RUN (unaided); None if it was asked about no executed action."""
    unaided_success: dict[str, Measure] = field(default_factory=dict)
    """As `success` (unaided)."""


def measure(conn: Connection, model: str, jobs: Mapping[str, int]) -> Evaluation:
    """Measure a model by two finished jobs, one for each of SETTINGS."""
    selected, unaided = (sql.run(conn, "evaluator/traces", job=jobs[name]).all() for name in SETTINGS)
    pairs = [pair for _, pair in judged(conn, jobs["unaided"])]
    return Evaluation(
        model=model,
        success=success(selected),
        legal=ratio([row.legal for row in unaided], [row.linted for row in unaided]),
        ran=ratio([row.ran for row in unaided], [row.executed for row in unaided]),
        candidates_per_block=ratio([row.candidates for row in selected], [row.kept for row in selected]),
        tokens_per_block=ratio([row.sampled_tokens for row in selected], [row.kept for row in selected]),
        evaluator=figures(WILL_RUN, "ran", pairs) if pairs else None,
        unaided_success=success(unaided),
    )


def success(rows: Sequence[Any]) -> dict[str, Measure]:
    """The share of successes by bootstrap. Traces whose evaluations are null are left out."""
    names = sorted({row.bootstrap for row in rows})
    known = [row for row in rows if row.success is not None]
    return {name: share([row.success for row in known if row.bootstrap == name]) for name in names}


def judged(conn: Connection, job: int, campaign: str | None = None) -> list[tuple[int, Pair]]:
    """Answers to WILL_RUN about executed blocks of a job, each with the block's id: its own, or a campaign's."""
    rows = sql.run(conn, "evaluator/pairs", job=job, campaign=campaign, question=WILL_RUN)
    return [(row.block_id, Pair(float(row.score), bool(row.answer), int(row.trace))) for row in rows]


def share(outcomes: Sequence[bool]) -> Measure:
    """The share of true, independent outcomes with Wilson's interval (doi:10.1080/01621459.1927.10502953)."""
    n, z = len(outcomes), NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    if not n:
        return Measure(math.nan, 0.0, 1.0, 0)
    p, scale = sum(outcomes) / n, 1 + z * z / n
    middle = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return Measure(p, max(0.0, middle - half), min(1.0, middle + half), n)


def ratio(parts: Sequence[int], wholes: Sequence[int]) -> Measure:
    """Sum of `parts` over sum of `wholes`, with a bootstrap interval over traces. Both have one item per trace."""
    import numpy as np  # a sixth of the start-up time of a command that does not need it

    n = len(parts)
    if not sum(wholes):
        return Measure(math.nan, math.nan, math.nan, n)
    picks = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    above, below = np.array(parts)[picks].sum(axis=1), np.array(wholes)[picks].sum(axis=1)
    low, high = np.quantile(above / np.maximum(below, 1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Measure(sum(parts) / sum(wholes), float(low), float(high), n)
