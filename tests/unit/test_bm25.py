"""BM25 scores equal those of rank-bm25, and postings survive packing."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from weavegen.search import bm25
from weavegen.search.cache import ENTRY_BYTES, Cache
from weavegen.search.postings import MAX_SEGMENT_TEXTS, Posting, is_dense, merge_postings, pack, unpack
from weavegen.trace.query import words

held = st.dictionaries(st.integers(0, 299), st.integers(1, 255), min_size=1)
"""Where a word stands among 300 texts, and how often."""


def packed(found: dict[int, int], size: int) -> Posting:
    positions = sorted(found)
    data = pack(np.array(positions), np.array([found[position] for position in positions]), size)
    return unpack(data, len(positions), size)


def as_dict(posting: Posting, size: int) -> dict[int, int]:
    times = posting.at(np.arange(size)).tolist()
    return {position: number for position, number in enumerate(times) if number}


@given(held, st.integers(300, 400))
def test_a_posting_survives_packing(found: dict[int, int], size: int) -> None:
    posting = packed(found, size)
    assert (posting.positions is None) == is_dense(len(found), size)
    assert as_dict(posting, size) == found
    assert posting.frequency() == len(found)
    marks = np.zeros(size, bool)
    posting.mark(marks)
    assert set(np.flatnonzero(marks).tolist()) == set(found)
    even = np.arange(size) % 2 == 0
    assert posting.frequency(even) == sum(position % 2 == 0 for position in found)


@pytest.mark.parametrize("holding", [1, 2, 3, 4, 8, 9])
def test_postings_at_the_limit_between_the_two_forms(holding: int) -> None:
    found = dict.fromkeys(range(holding), 7)
    assert as_dict(packed(found, 9), 9) == found


def test_the_last_text_of_the_largest_segment_has_a_position() -> None:
    found = {0: 1, MAX_SEGMENT_TEXTS - 1: 255}
    assert as_dict(packed(found, MAX_SEGMENT_TEXTS), MAX_SEGMENT_TEXTS) == found


@given(held, held, held)
def test_postings_of_segments_can_be_merged(
    first: dict[int, int], second: dict[int, int], third: dict[int, int]
) -> None:
    parts = [(offset, packed(found, 300)) for offset, found in ((0, first), (300, second), (900, third))]
    expected = {
        offset + at: times for offset, found in ((0, first), (300, second), (900, third)) for at, times in found.items()
    }
    holding, data = merge_postings(parts, 1200)
    assert holding == len(expected)
    assert as_dict(unpack(data, holding, 1200), 1200) == expected


def texts(n: int, seed: int) -> list[str]:
    """Texts of words whose frequencies are as uneven as in a natural language. One word is in most of the texts."""
    dice = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(300)]
    weights = [1 / (number + 1) for number in range(300)]
    often = [["always"] if dice.random() < 0.8 else [] for _ in range(n)]
    return [" ".join(some + dice.choices(vocabulary, weights, k=dice.randrange(60))) or "..." for some in often]


@pytest.mark.parametrize("query", ["word3 word77 word250", "always word9", "always", "word5 word5 nosuch", "nosuch"])
@pytest.mark.parametrize("n", [3, 40, 500])
def test_a_subset_of_texts_scores_as_with_rank_bm25_over_all_texts(query: str, n: int) -> None:
    counts = [bm25.word_counts(text) for text in texts(n, seed=n)]
    lengths = [counter.total() for counter in counts]
    theirs = BM25Okapi([words(text) or [""] for text in texts(n, seed=n)])
    asked = words(query)
    frequencies = {word: sum(word in text for text in counts) for word in asked}
    histogram = bm25.df_histogram(counts)
    weights = bm25.idf_weights(frequencies, n, lambda: bm25.average_idf(histogram, n))
    some = list(range(0, n, 3))
    scorer = bm25.Okapi([counts[at] for at in some], [lengths[at] for at in some], sum(lengths) / n, weights)
    ours = scorer.get_scores(asked)
    expected = [float(theirs.get_scores(asked)[at]) for at in some]
    if any(
        2 * frequencies[word] > n for word in asked
    ):  # the weight is the mean over all words, which rank-bm25 sums in another order
        assert ours.tolist() == pytest.approx(expected, rel=1e-12)
    else:
        assert ours.tolist() == expected


def test_every_word_has_a_weight() -> None:
    for holding, size in ((1, 1), (1, 2), (2, 2), (2, 4)):
        assert bm25.idf_weights({"lantern": holding}, size, lambda: -1.0)["lantern"] > 0
    assert bm25.idf_weights({"lantern": 2, "oil": 1}, 4, lambda: 2.0) == {"lantern": 0.5, "oil": bm25.idf(1, 4)}


def test_nothing_to_score() -> None:
    assert bm25.Okapi([], [], 1.0, {"word": 1.0}).get_scores(["word"]).tolist() == []
    assert bm25.average_idf(Counter(), 10) == 0.0


def test_a_cache_drops_the_least_recently_used_entry() -> None:
    cache = Cache(max_bytes=3 * (ENTRY_BYTES + 10))
    for key in "abc":
        cache.put(key, key.upper(), 10)
    assert cache.get("ax") == {"a": "A"}
    cache.put("d", "D", 10)
    assert cache.get("abcd") == {"a": "A", "c": "C", "d": "D"}
    cache.put("d", "E", 10)  # replaces the old entry
    assert cache.get("acd") == {"a": "A", "c": "C", "d": "E"}
    cache.put("big", "B", 10_000)  # larger than the whole cache
    assert cache.get(["a", "big"]) == {}
