"""Islands of programs: which programs the model reads, and which survive. Pure; randomness comes from seeds.

After FunSearch (Romera-Paredes et al., Nature 625, 2024, doi:10.1038/s41586-023-06924-6; methods section):

- Programs live on separate islands, so that one early success does not fill them all.
- Programs of an island with the same score on every instance are a cluster. A cluster is drawn by a softmax of the
  scores, then a program of the cluster by a softmax that prefers short programs.
- From time to time the worse half of the islands is emptied. Each begins again with the best program of an island
  that survives.

Two differences from the paper. The paper lowers the clusters' temperature as the number of programs grows, and all its
scores have one scale; here scores are divided by their range on the island, so that one temperature suits every task.
And an island holds a bounded number of characters, because a tick passes the search's state to the next tick: the
worst programs are dropped first, and stay in the table `programs`.
"""

import math
import random
from collections.abc import Sequence

import msgspec

SCORE_TEMPERATURE = 0.15
"""Temperature for clusters. Scores are first divided by their range on the island."""
LENGTH_TEMPERATURE = 1.0
"""Temperature for programs of a cluster. Lengths are first divided by their range in the cluster."""
MAX_CHARS = 200_000
"""Characters of all programs on all islands."""


class Program(msgspec.Struct, frozen=True, array_like=True):
    """A program that ran, passed its tests and has a score."""

    number: int
    """Number among all programs that the search has evaluated, from 0."""
    generation: int
    score: float
    """Higher is better."""
    signature: tuple[float, ...]
    """Score on each instance; one value if the evaluator returns one number."""
    source: str


Island = tuple[Program, ...]


def parents(island: Sequence[Program], seed: int, count: int = 2) -> list[Program]:
    """Draw at most `count` distinct programs for the model to read, the best last."""
    rng = random.Random(seed)
    left = list(island)
    chosen: list[Program] = []
    while left and len(chosen) < count:
        chosen.append(_draw(left, rng))
        # A second program of the same cluster tells the model nothing new, so another cluster is preferred.
        others = [program for program in left if program.signature != chosen[-1].signature]
        left = others or [program for program in left if program is not chosen[-1]]
    return sorted(chosen, key=_rank)


def added(island: Island, programs: Sequence[Program], max_chars: int) -> Island:
    """The island with new programs, cut to `max_chars` characters. Programs with equal sources are kept once."""
    distinct = {program.source: program for program in reversed((*island, *programs))}.values()
    kept: list[Program] = []
    size = 0
    for program in sorted(distinct, key=_rank, reverse=True):
        if not kept or size + len(program.source) <= max_chars:  # the best program stays even if it is too long
            kept.append(program)
            size += len(program.source)
    return tuple(sorted(kept, key=lambda program: program.number))


def reset(islands: Sequence[Island], seed: int) -> tuple[Island, ...]:
    """Replace each island of the worse half by the best program of an island of the better half."""
    rng = random.Random(seed)
    # Islands with the same best program are ordered at random, so that their numbers do not matter.
    order = sorted(range(len(islands)), key=lambda place: (_rank(best_of(islands[place])), rng.random()))
    emptied, survivors = order[: len(islands) // 2], order[len(islands) // 2 :]
    after = list(islands)
    for place in emptied:
        after[place] = (best_of(islands[rng.choice(survivors)]),)
    return tuple(after)


def best_of(island: Sequence[Program]) -> Program:
    """The program with the highest score. Among equal scores: the shortest, then the first."""
    return max(island, key=_rank)


def _rank(program: Program) -> tuple[float, int, int]:
    return program.score, -len(program.source), -program.number


def _draw(programs: Sequence[Program], rng: random.Random) -> Program:
    clusters: dict[tuple[float, ...], list[Program]] = {}
    for program in programs:
        clusters.setdefault(program.signature, []).append(program)
    groups = list(clusters.values())
    [group] = rng.choices(groups, _softmax([group[0].score for group in groups], SCORE_TEMPERATURE))
    lengths = _softmax([-float(len(program.source)) for program in group], LENGTH_TEMPERATURE)
    [program] = rng.choices(group, lengths)
    return program


def _softmax(values: Sequence[float], temperature: float) -> list[float]:
    """Unnormalised weights exp((value - max) / (range * temperature))."""
    top = max(values)
    spread = (top - min(values)) or 1.0
    return [math.exp((value - top) / spread / temperature) for value in values]
