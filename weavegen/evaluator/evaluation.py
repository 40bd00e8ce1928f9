"""How well a model does as an agent: measured on traces that were written for it, with intervals.

The same tasks are done twice. `selected` is the agent as it works: many candidates, the evaluator chooses.
`unaided` takes the first candidate of each block and executes it, whatever the evaluator says of it: that shows
what the model writes by itself, and gives the evaluator something to be wrong about.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import sqlalchemy as sa

from weavegen.evaluator.calibration import Figures, Pair, figures
from weavegen.evaluator.rubrics import WILL_RUN

SETTINGS: dict[str, dict[str, Any]] = {
    "selected": {},
    "unaided": {"rounds": [1], "backtrack_below": -1000.0, "all_questions": True},
}
"""What sets the two apart from the defaults."""
HELD_OUT = 1_000_000
"""Seeds from here on are for evaluation: jobs that make data for training take lower ones."""
RESAMPLES = 2000
"""Of the bootstrap."""
CONFIDENCE = 0.95

# A trace succeeds that returned, with all evaluations of its task true in the end.
TRACES = """
select f.name as bootstrap, t.status, t.candidates, t.sampled_tokens,
  (select count(*) from sft_examples s where s.trace_id = t.id) as kept,
  t.ended_because = 'returned' and coalesce((
    select bool_and(e.error is null and e.value = 'true') from evaluations e
    where e.trace_id = t.id and e.scope = 'task' and e.tick = t.ticks
  ), false) as success,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id where c.trace_id = t.id) as linted,
  (select count(*) from candidates c join penalties p on p.candidate_id = c.id
    where c.trace_id = t.id and p.compiles) as legal,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran is not null and b.tick > 0) as executed,
  (select count(*) from blocks b where b.trace_id = t.id and b.ran and b.tick > 0) as ran
from traces t join bootstraps f on f.id = t.bootstrap_id
where t.job_id = :job and t.status in ('ended', 'failed') order by t.number
"""
PAIRS = """
select score, answer, trace_id from calibration_pairs
where job_id = :job and campaign is null and question = :question and exact and score is not null
order by block_id
"""


@dataclass(frozen=True)
class Measure:
    """A share or a mean, and where it lies with 95% confidence."""

    value: float
    low: float
    high: float
    of: int
    """Traces that it is made of."""


@dataclass(frozen=True)
class Evaluation:
    """What was measured of one model."""

    model: str
    success: dict[str, Measure]
    """By bootstrap: share of traces that reached their task's end with all of its evaluations true (selected)."""
    legal: Measure
    """Share of candidates that compile (unaided)."""
    ran: Measure
    """Share of executed blocks that ran without an error (unaided)."""
    candidates_per_block: Measure
    """Sampled for each block worth imitating: kept, legal, not known to have failed (selected)."""
    tokens_per_block: Measure
    evaluator: Figures | None
    """Of the question whether an action will run (unaided); None: it was never asked of one that was executed."""


def measure(conn: sa.Connection, model: str, jobs: Mapping[str, int]) -> Evaluation:
    """From the jobs of `SETTINGS`, which are over."""
    rows = {name: conn.execute(sa.text(TRACES), {"job": job}).all() for name, job in jobs.items()}
    chosen, alone = rows["selected"], rows["unaided"]
    found = conn.execute(sa.text(PAIRS), {"job": jobs["unaided"], "question": WILL_RUN}).all()
    pairs = [Pair(float(score), bool(answer), int(trace)) for score, answer, trace in found]
    names = sorted({row.bootstrap for row in chosen})
    return Evaluation(
        model=model,
        success={name: share([row.success for row in chosen if row.bootstrap == name]) for name in names},
        legal=ratio([row.legal for row in alone], [row.linted for row in alone]),
        ran=ratio([row.ran for row in alone], [row.executed for row in alone]),
        candidates_per_block=ratio([row.candidates for row in chosen], [row.kept for row in chosen]),
        tokens_per_block=ratio([row.sampled_tokens for row in chosen], [row.kept for row in chosen]),
        evaluator=figures(WILL_RUN, "ran", pairs) if pairs else None,
    )


def share(outcomes: Sequence[bool]) -> Measure:
    """Of independent outcomes, with Wilson's interval (doi:10.1080/01621459.1927.10502953)."""
    n, z = len(outcomes), NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    if not n:
        return Measure(math.nan, 0.0, 1.0, 0)
    p, scale = sum(outcomes) / n, 1 + z * z / n
    middle = (p + z * z / (2 * n)) / scale
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale
    return Measure(p, max(0.0, middle - half), min(1.0, middle + half), n)


def ratio(parts: Sequence[int], wholes: Sequence[int]) -> Measure:
    """Sum of `parts` over sum of `wholes`, one of each a trace; the interval is a bootstrap over traces."""
    n = len(parts)
    if not sum(wholes):
        return Measure(math.nan, math.nan, math.nan, n)
    picks = np.random.default_rng(0).integers(0, n, (RESAMPLES, n))
    above, below = np.array(parts)[picks].sum(axis=1), np.array(wholes)[picks].sum(axis=1)
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    low, high = np.quantile(above / np.maximum(below, 1), tails)
    return Measure(sum(parts) / sum(wholes), float(low), float(high), n)
