"""BM25 as rank-bm25 has it: its scorer, over texts that it need not hold all, and what an index picks by."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from weavegen.trace.query import words

K1, B, EPSILON = 1.5, 0.75, 0.25
"""How soon a word that is repeated counts no more, how much a text's length counts, and what part of the average a
word is worth that most texts have: rank-bm25's own defaults."""
PICKED = 100
"""Texts at least that an index picks, for rank-bm25 to score."""

Spread = Counter[int]
"""How many words stand in so many texts: texts -> words."""


def counted(text: str) -> Counter[str]:
    """How often each word stands in a text. One without words has the empty one, so that no length is 0."""
    return Counter(words(text) or [""])


def rarity(holding: int, size: int) -> float:
    """Inverse document frequency of a word that stands in `holding` of `size` texts; below 0 if in most."""
    return math.log(size - holding + 0.5) - math.log(holding + 0.5)


def average_rarity(spread: Spread, size: int) -> float:
    """Over all words of `size` texts; 0 if they have none."""
    # fsum does not depend on the order of its terms, so scores do not depend on how much is indexed.
    rarities = math.fsum(words * rarity(holding, size) for holding, words in spread.items())
    return rarities / spread.total() if spread.total() else 0.0


def spread_of(counts: Iterable[Mapping[str, int]]) -> Spread:
    """Of texts, given as their words' counts."""
    return Counter(Counter(word for found in counts for word in found).values())


def worth(
    words: Iterable[str], holding: Mapping[str, int], size: int, average: Callable[[], float]
) -> dict[str, float]:
    """What each word adds to a score. `average`: the mean rarity of all words, asked for only if it is needed.

    As in rank-bm25 a word that more than half of the texts have is worth a part of that.
    """
    found = {word: rarity(holding[word], size) for word in words}
    if found and min(found.values()) < 0:
        floor = EPSILON * average()
        found = {word: value if value >= 0 else floor for word, value in found.items()}
    return found


def damping(lengths: NDArray[Any], average_length: float) -> NDArray[Any]:
    """What is added to a word's count below the line, for each text; of the type of `lengths`, floats."""
    kind = lengths.dtype.type
    below: NDArray[Any] = lengths * kind(K1 * B / average_length) + kind(K1 * (1 - B))
    return below


class Okapi(BM25Okapi):  # type: ignore[misc]
    """rank-bm25's scorer for some texts, with the statistics of all: it would count them in a list of all texts.

    `counts`: of each text, how often a word stands in it, for the words of the query at least; `lengths` in words.
    `get_scores(words)` gives float64 scores in the order of the texts.
    """

    def __init__(
        self,
        counts: Sequence[Mapping[str, int]],
        lengths: Sequence[int] | NDArray[Any],
        average_length: float,
        worth: Mapping[str, float],
    ) -> None:
        self.k1, self.b, self.epsilon = K1, B, EPSILON
        self.corpus_size = len(counts)
        self.doc_freqs, self.doc_len = counts, lengths
        self.avgdl, self.idf = average_length, worth


def scored(
    query: Sequence[str],
    counts: Sequence[Mapping[str, int]],
    lengths: Sequence[int] | NDArray[Any],
    average_length: float,
    worth: Mapping[str, float],
) -> NDArray[np.float64]:
    """Scores that rank-bm25 gives some texts; see Okapi."""
    if not counts:
        return np.zeros(0)
    scores: NDArray[np.float64] = Okapi(counts, lengths, average_length, worth).get_scores(query)
    return scores
