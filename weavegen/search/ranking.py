"""BM25 over a few texts that are at hand: a library of tools, requests, what a user has said."""

from collections.abc import Sequence

from rank_bm25 import BM25Plus

from weavegen.trace.query import words


def ranked(query: str, texts: Sequence[str], most: int) -> list[tuple[int, float]]:
    """The texts that hold a word of the query, as (position, score), best first; among equals the first.

    rank-bm25's BM25Plus without its bonus is BM25 whose words are always worth something. The plain one would not
    find the only text that there is: a word that all texts have is worth nothing there.
    """
    asked = words(query)
    counted = [words(text) for text in texts]
    if not asked or not any(counted):
        return []
    scores = BM25Plus(counted, delta=0).get_scores(asked)
    found = [(position, float(score)) for position, score in enumerate(scores) if score > 0]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:most]
