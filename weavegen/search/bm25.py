"""The BM25 formula: inverse document frequencies, length normalisation, and exact scores by rank-bm25."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from rank_bm25 import BM25Okapi

from weavegen.trace.query import words

K1, B, EPSILON = 1.5, 0.75, 0.25
"""rank-bm25's defaults: saturation of repeated words, weight of the text's length, and the part of the average idf
that a word gets if half of the texts or more hold it."""
LEAST_WEIGHT = 1e-6

DfHistogram = Counter[int]
"""How many words have a document frequency: document frequency -> words."""


def word_counts(text: str) -> Counter[str]:
    """How often each word occurs in a text. A text without words counts as one empty word: no length is 0."""
    return Counter(words(text) or [""])


def idf(df: int, size: int) -> float:
    """Inverse document frequency of a word that `df` of `size` texts hold. Negative if more than half hold it."""
    return math.log(size - df + 0.5) - math.log(df + 0.5)


def df_histogram(counts: Iterable[Mapping[str, int]]) -> DfHistogram:
    """The histogram of some texts, each given as its word counts."""
    return Counter(Counter(word for text in counts for word in text).values())


def add_frequencies(histogram: DfHistogram, old: Mapping[str, int], new: Mapping[str, int]) -> DfHistogram:
    """Add texts with the document frequencies `new` to a histogram whose words have the frequencies `old`."""
    for word, df in new.items():
        if before := old.get(word, 0):
            histogram[before] -= 1
        histogram[before + df] += 1
    return histogram


def average_idf(histogram: DfHistogram, size: int) -> float:
    """Mean idf of all words of `size` texts; 0 if there are no words."""
    # The result of fsum does not depend on the order of its terms, so it does not depend on how much is indexed.
    total = math.fsum(words * idf(df, size) for df, words in histogram.items())
    return total / histogram.total() if histogram.total() else 0.0


def idf_weights(frequencies: Mapping[str, int], size: int, average: Callable[[], float]) -> dict[str, float]:
    """The positive weight of each word, from its document frequency among `size` texts.

    An idf that is not positive is replaced by EPSILON times the average idf of all words. `average` is called only
    then. BM25Okapi does so too, but leaves an idf of 0 and a negative average, by which a word would find nothing.
    """
    weights = {word: idf(df, size) for word, df in frequencies.items()}
    if weights and min(weights.values()) <= 0:
        floor = max(EPSILON * average(), LEAST_WEIGHT)
        weights = {word: weight if weight > 0 else floor for word, weight in weights.items()}
    return weights


def positive_idf_weights(frequencies: Mapping[str, int], size: int) -> dict[str, float]:
    """The weight of each word as Lucene computes it: ln(1 + (N - df + 0.5) / (df + 0.5)), which is never negative.

    For short lists: in a folder of three passages, a word that two of them hold still counts.
    """
    return {word: math.log1p((size - df + 0.5) / (df + 0.5)) for word, df in frequencies.items()}


class Okapi(BM25Okapi):  # type: ignore[misc]
    """rank-bm25's scorer for some texts of a larger collection, with the statistics of the whole collection.

    BM25Okapi itself would compute the statistics from a list of all texts. `counts`: for each text, how often words
    occur in it, at least those of the query. `lengths`, and the `average` of all texts: in words. `get_scores(words)`
    gives float64 scores in the order of the texts.
    """

    def __init__(
        self, counts: Sequence[Mapping[str, int]], lengths: Sequence[int], average: float, weights: Mapping[str, float]
    ) -> None:
        self.k1, self.b, self.epsilon = K1, B, EPSILON
        self.corpus_size = len(counts)
        self.doc_freqs, self.doc_len = counts, lengths
        self.avgdl, self.idf = average, weights
