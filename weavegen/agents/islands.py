"""Islands of programs: which ones the model is shown, and which survive. Pure; randomness comes from seeds.

After FunSearch (Romera-Paredes et al., "Mathematical discoveries from program search with large language models",
Nature 625, 2024, published online in 2023; its methods section):

- Programs live on islands that know nothing of each other, so that one early success does not fill them all.
- The programs of an island that score the same on every instance are a cluster. A cluster is drawn with a softmax
  of its score, then one of its programs with a softmax that prefers short ones.
- From time to time the worse half of the islands is emptied, and each is founded anew with the best program of an
  island that survives.

Two things are otherwise. The paper's clusters have a temperature that falls with the number of programs, on scores
of one size; here scores are divided by their range on the island, so that one temperature suits every task. And an
island holds a bounded number of characters, since a search's state is handed from tick to tick: the worst programs
go first. What is let go here is still in the table `programs`.
"""

import math
import random
from collections.abc import Sequence

import msgspec

TEMPERATURE = 0.15
"""Of the clusters, whose scores are first divided by their range on the island."""
LENGTH_TEMPERATURE = 1.0
"""Of the programs in a cluster, whose lengths are first divided by their range in the cluster."""
ROOM = 200_000
"""Characters in all programs of all islands."""


class Program(msgspec.Struct, frozen=True, array_like=True):
    """A program with a score: one that ran and passed its tests."""

    number: int
    """Among all that the search has tried, from 0."""
    generation: int
    score: float
    """Higher is better."""
    signature: tuple[float, ...]
    """Its score on each instance; alone where the evaluator gives one number."""
    source: str


Island = tuple[Program, ...]


def founded(program: Program, count: int) -> tuple[Island, ...]:
    """Islands on which there is nothing but this program."""
    return ((program,),) * count


def parents(island: Sequence[Program], seed: int, most: int = 2) -> list[Program]:
    """Distinct programs to show to the model, the best last: `most` of them, or as many as there are."""
    rng = random.Random(seed)
    left = list(island)
    chosen: list[Program] = []
    while left and len(chosen) < most:
        chosen.append(_drawn(left, rng))
        # A second one of the same cluster would show the model nothing new, as long as there are others.
        others = [program for program in left if program.signature != chosen[-1].signature]
        left = others or [program for program in left if program is not chosen[-1]]
    return sorted(chosen, key=_worth)


def added(island: Island, programs: Sequence[Program], room: int) -> Island:
    """The island with new programs, cut to `room` characters. One that it has word by word is no new one."""
    known = {program.source for program in island}
    together = list(island)
    for program in programs:
        if program.source not in known:
            known.add(program.source)
            together.append(program)
    kept: list[Program] = []
    for program in sorted(together, key=_worth, reverse=True):  # the best has room even where it is all there is
        if not kept or sum(len(one.source) for one in kept) + len(program.source) <= room:
            kept.append(program)
    return tuple(sorted(kept, key=lambda program: program.number))


def reset(islands: Sequence[Island], seed: int) -> tuple[Island, ...]:
    """The islands after the worse half of them was founded anew, each with the best program of a better one."""
    rng = random.Random(seed)
    # Those with the same best in any order, so that an island is not emptied for its place alone.
    order = sorted(range(len(islands)), key=lambda at: (_worth(best_of(islands[at])), rng.random()))
    lost, survivors = order[: len(islands) // 2], order[len(islands) // 2 :]
    after = list(islands)
    for at in lost:
        after[at] = (best_of(islands[rng.choice(survivors)]),)
    return tuple(after)


def best_of(island: Sequence[Program]) -> Program:
    """The one with the highest score; of equals the shortest, and of these the first."""
    return max(island, key=_worth)


def _worth(program: Program) -> tuple[float, int, int]:
    return program.score, -len(program.source), -program.number


def _drawn(programs: Sequence[Program], rng: random.Random) -> Program:
    clusters: dict[tuple[float, ...], list[Program]] = {}
    for program in programs:
        clusters.setdefault(program.signature, []).append(program)
    groups = list(clusters.values())
    [group] = rng.choices(groups, _softmax([group[0].score for group in groups], TEMPERATURE))
    lengths = _softmax([-float(len(program.source)) for program in group], LENGTH_TEMPERATURE)
    [program] = rng.choices(group, lengths)
    return program


def _softmax(values: Sequence[float], temperature: float) -> list[float]:
    """Weights exp(value / (range * temperature)), the largest of which is 1."""
    top = max(values)
    spread = (top - min(values)) or 1.0
    return [math.exp((value - top) / spread / temperature) for value in values]
