"""The BM25 index in memory: segments with the postings of a query's words, and the ranking of their texts.

All searches rank here. They differ in where the segments come from: the corpus (corpus_index.py), one trace
(trace_index.py), or a list of texts (passages.py).

The ranking scores every text in float32, so that filters lose no hits. The best candidates get their exact scores
from rank-bm25.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weavegen.kernel.steps import Hit
from weavegen.search import bm25
from weavegen.search.bm25 import K1, B, Okapi, word_counts
from weavegen.search.documents import Columns, type_number
from weavegen.search.postings import Marks, Posting
from weavegen.trace.query import Query, words

MIN_CANDIDATES = 100
"""Minimum number of texts that rank-bm25 scores."""
FLOAT32_ERROR = 1e-4
"""Bound of the relative error of a float32 score."""

Weights = Callable[[Mapping[str, int], int], Mapping[str, float]]
"""Gives the idf weight of each word from (document frequencies, number of texts)."""


@dataclass(eq=False)
class Segment:
    """Some texts of an index, as one query sees them."""

    size: int
    columns: Columns
    """Always has `lengths`; `ids` if hits are made from it, `types` if the query names a type."""
    postings: dict[str, Posting]
    """The query's words that occur in the segment."""
    example: bool = False
    """Whether the texts are examples and not blocks."""
    id: int | None = None
    """corpus_segments.id, where the segment comes from that table."""
    in_scope: Marks | None = None
    """The texts that BM25's statistics are computed from and that may be hits. None: all."""
    allowed: Marks | None = None
    """The texts that pass the scope's filters. Filters do not change the statistics. None: all."""

    @cached_property
    def lengths(self) -> NDArray[np.uint32]:
        """Lengths in words of the texts in scope."""
        lengths: NDArray[np.uint32] = self.columns["lengths"]
        return lengths if self.in_scope is None else lengths[self.in_scope]


Candidates = list[tuple[Segment, NDArray[np.intp]]]
"""(segment, positions in it)."""


class Match(NamedTuple):
    """A text that a query finds."""

    segment: Segment
    position: int
    score: float


def segment_of(
    counts: Sequence[Counter[str]],
    words: Collection[str],
    columns: Columns | None = None,
    *,
    example: bool = False,
    max_count: int | None = None,
) -> Segment:
    """A segment made of texts, given as their word counts, with the postings of some words."""
    lengths = np.array([text.total() for text in counts], np.uint32)
    segment = Segment(len(counts), {"lengths": lengths, **(columns or {})}, {}, example)
    for word in words:
        occurrences = np.array([text.get(word, 0) for text in counts])
        if occurrences.any():
            segment.postings[word] = Posting(None, np.minimum(occurrences, max_count or occurrences.max()))
    return segment


def search(
    segments: Sequence[Segment],
    query: Query,
    weights: Weights,
    *,
    least_score: float,
    top_k: int,
    newest_first: bool = True,
) -> list[Match]:
    """The best texts, not sorted: at least `top_k` if that many match, with exact scores of at least `least_score`.

    Each match holds one of the query's words. `newest_first` says which candidates of equal scores are kept: those
    of later segments and positions, or those of earlier ones.
    """
    segments = [segment for segment in segments if len(segment.lengths)]
    if not segments:
        return []
    size = sum(len(segment.lengths) for segment in segments)
    # The sum is an integer, so that the mean length is exactly rank-bm25's.
    average_length = sum(int(segment.lengths.sum(dtype=np.int64)) for segment in segments) / size
    frequencies = {
        word: sum(one.postings[word].frequency(one.in_scope) for one in segments if word in one.postings)
        for word in sorted(set(query.words))
    }
    idf = weights(frequencies, size)
    # First the best `limit` texts by float32 scores that pass the filters.
    limit = max(MIN_CANDIDATES, 4 * top_k)
    gains = {word: times * idf[word] * (K1 + 1) for word, times in Counter(query.words).items()}
    floor = max(least_score - FLOAT32_ERROR * abs(least_score), float(np.finfo(np.float32).tiny))
    scores, numbers, positions = np.zeros(0, np.float32), np.zeros(0, np.intp), np.zeros(0, np.intp)
    direction = -1 if newest_first else 1
    for number, segment in enumerate(segments):
        segment_scores = float32_scores(segment, gains, average_length)
        above = np.flatnonzero(segment_scores >= floor)
        if not len(above):
            continue
        above = above[passes_filters(segment, query, above)]
        scores = np.concatenate([scores, segment_scores[above]])
        numbers = np.concatenate([numbers, np.full(len(above), number)])
        positions = np.concatenate([positions, above])
        if len(scores) > limit:
            best = np.flatnonzero(scores >= np.partition(scores, -limit)[-limit])
            order = np.lexsort((direction * positions[best], direction * numbers[best], -scores[best]))
            best = best[order[:limit]]
            scores, numbers, positions = scores[best], numbers[best], positions[best]
            floor = max(floor, float(scores[-1]))
    chosen = [(segments[number], positions[numbers == number]) for number in np.unique(numbers).tolist()]
    return [match for match in exact_matches(chosen, query, idf, average_length) if match.score >= least_score]


def float32_scores(segment: Segment, weights: Mapping[str, float], average_length: float) -> NDArray[np.float32]:
    """Approximate BM25 scores of all texts of a segment. `weights`: idf times (K1 + 1) times occurrences."""
    # K1 * (1 - B + B * length / average), the summand in BM25's denominator.
    lengths = segment.columns["lengths"].astype(np.float32)
    norm = lengths * np.float32(K1 * B / average_length) + np.float32(K1 * (1 - B))
    scores = np.zeros(segment.size, np.float32)
    for word, weight in weights.items():
        if (posting := segment.postings.get(word)) is None:
            continue
        places = slice(None) if posting.positions is None else posting.positions
        gain = posting.counts.astype(np.float32)
        below = gain + norm[places]
        gain *= np.float32(weight)
        gain /= below
        scores[places] += gain
    return scores


def passes_filters(segment: Segment, query: Query, positions: NDArray[np.intp]) -> Marks:
    """Which of the texts at these positions are in scope and fit the query's type, +words and -words."""
    passes = np.ones(len(positions), np.bool_)
    for marks in (segment.in_scope, segment.allowed):
        if marks is not None:
            passes &= marks[positions]
    if query.type is not None:
        passes &= segment.columns["types"][positions] == type_number(query.type)
    for listed, required in ((query.unwanted, False), (query.wanted, True)):
        if listed:
            marks = np.zeros(segment.size, np.bool_)
            for word in set(listed):
                if word in segment.postings:
                    segment.postings[word].mark(marks)
            passes &= marks[positions] == required
    return passes


def exact_matches(chosen: Candidates, query: Query, idf: Mapping[str, float], average_length: float) -> list[Match]:
    """The candidates with rank-bm25's scores."""
    texts = [(segment, position) for segment, positions in chosen for position in positions.tolist()]
    counts: list[dict[str, int]] = []
    lengths: list[int] = []
    for segment, positions in chosen:
        present = [word for word in idf if word in segment.postings]
        times = (segment.postings[word].at(positions).tolist() for word in present)
        counts += [dict(zip(present, row, strict=True)) for row in zip(*times, strict=True)]
        lengths += segment.columns["lengths"][positions].tolist()
    scores = Okapi(counts, lengths, average_length, idf).get_scores(query.words).tolist()
    return [Match(*text, score) for text, score in zip(texts, scores, strict=True)]


def hits_of(matches: Sequence[Match]) -> list[Hit]:
    """Blocks and examples as hits, best first. For equal scores, blocks come before examples, newer before older."""
    hits = [
        Hit(id=int(segment.columns["ids"][position]), example=segment.example, score=score)
        for segment, position, score in matches
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.example, -hit.id))


def rank_segment(segment: Segment, query: str, top_k: int) -> list[tuple[int, float]]:
    """(position, score) of the best texts of one segment, best first; for equal scores, in order of position.

    `query` is plain words. Each word has a positive weight: see `positive_idf_weights`.
    """
    plain = Query(plain=tuple(words(query)))
    matches = search([segment], plain, bm25.positive_idf_weights, least_score=0.0, top_k=top_k, newest_first=False)
    ranking = sorted((-score, position) for _, position, score in matches)
    return [(position, -score) for score, position in ranking[:top_k]]


def rank_texts(query: str, texts: Sequence[str], top_k: int) -> list[tuple[int, float]]:
    """`rank_segment` over a list of texts: a library of tools, requests, a user's preferences."""
    return rank_segment(segment_of(list(map(word_counts, texts)), words(query)), query, top_k)
