"""BM25 over all traces' blocks and the examples, through the corpus index.

A query looks at every text, in numpy and part by part, so that filters lose no hits. What is best by float32 gets
its score from rank-bm25.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from weavegen.kernel.steps import Hit
from weavegen.search import bm25, documents
from weavegen.search.bm25 import K1, PICKED
from weavegen.search.corpus_index import Corpus, Part, Segment, Texts
from weavegen.search.scope import Marks, Scope
from weavegen.trace.query import Query

SLACK = 1e-4
"""Part of a score by which float32 may be wrong."""


@dataclass(frozen=True)
class Looked:
    """A part that a query looks at."""

    part: Part
    known: Marks | None
    """Those that are in the scope; None: all."""
    lengths: NDArray[np.float32]
    """Of all its texts, in words."""

    @property
    def size(self) -> int:
        return self.part.size if self.known is None else int(np.count_nonzero(self.known))

    @property
    def words(self) -> int:
        # In whole numbers: rank-bm25's mean length is exact.
        lengths = self.part.columns["lengths"]
        return int(np.sum(lengths if self.known is None else lengths[self.known], dtype=np.int64))


@dataclass(frozen=True)
class Known:
    """What BM25 knows of a scope."""

    length: float
    """Of a text, in words, the mean."""
    worth: Mapping[str, float]
    """Of each word of the query."""


def search(conn: sa.Connection, query: Query, scope: Scope, *, least_score: float, most: int) -> list[Hit]:
    """The best `most` hits in a scope, best first, none below `least_score`. A hit holds one of the words."""
    corpus = Corpus(conn)
    looked = look(corpus, scope)
    size = sum(one.size for one in looked)
    if not size:
        return []
    segments = [one.part for one in looked if isinstance(one.part, Segment)]
    corpus.read_postings(segments, sorted({*query.words, *query.unwanted}))
    if query.type is not None:
        corpus.read_columns(segments, ["types"])
    known = statistics(corpus, looked, query, size)
    picked = pick(looked, query, scope, known, least_score, max(PICKED, 4 * most))
    corpus.read_columns([part for part, _ in picked if isinstance(part, Segment)], ["ids"])
    return best(conn, picked, query, known, least_score, most)


def statistics(corpus: Corpus, looked: Sequence[Looked], query: Query, size: int) -> Known:
    """Of the `size` texts in a scope; see Scope."""

    def average() -> float:
        if any(isinstance(one.part, Segment) for one in looked):
            return corpus.average_rarity(size)
        counts = [
            text
            for one in looked
            if isinstance(one.part, Texts)
            for place, text in enumerate(one.part.counts)
            if one.known is None or one.known[place]
        ]
        return bm25.average_rarity(bm25.spread_of(counts), size)

    words = sorted(set(query.words))
    holding = dict.fromkeys(words, 0)
    for one in looked:
        for word in words:
            if (posting := one.part.posting(word)) is not None:
                holding[word] += posting.holding(one.known)
    return Known(sum(one.words for one in looked) / size, bm25.worth(words, holding, size, average))


def look(corpus: Corpus, scope: Scope) -> list[Looked]:
    """The parts in a scope, those left out that have nothing of it."""
    parts: list[Part] = []
    if scope.blocks:
        corpus.read_columns(corpus.segments, ["lengths", *sorted(scope.needs)])
        parts = [*corpus.segments, corpus.queue()]
    found = []
    for part in parts:
        known = scope.known(part.columns)
        if part.size and (known is None or known.any()):
            found.append(Looked(part, known, part.columns["lengths"].astype(np.float32)))
    if scope.examples and (examples := corpus.examples()).size:
        found.append(Looked(examples, None, examples.columns["lengths"].astype(np.float32)))
    return found


Picked = list[tuple[Part, NDArray[np.intp]]]
"""(part, positions in it), of parts where anything was picked."""


def pick(
    looked: Sequence[Looked], query: Query, scope: Scope, known: Known, least_score: float, most: int
) -> Picked:
    """The best texts by float32 that may be hits."""
    weights = {word: times * known.worth[word] * (K1 + 1) for word, times in Counter(query.words).items()}
    floor = max(least_score - SLACK * abs(least_score), float(np.finfo(np.float32).tiny))
    scores, parts, positions = np.zeros(0, np.float32), np.zeros(0, np.intp), np.zeros(0, np.intp)
    for place, one in enumerate(looked):
        found_scores = partial_scores(one, weights, bm25.damping(one.lengths, known.length))
        found = np.flatnonzero(found_scores >= floor)
        if not len(found):
            continue
        found = found[fitting(one, query, scope, found)]
        scores = np.concatenate([scores, found_scores[found]])
        parts = np.concatenate([parts, np.full(len(found), place)])
        positions = np.concatenate([positions, found])
        if len(scores) > most:
            kept = np.lexsort((-positions, -parts, -scores))[:most]  # among equals the newest
            scores, parts, positions = scores[kept], parts[kept], positions[kept]
            floor = max(floor, float(scores[-1]))
    return [(looked[place].part, positions[parts == place]) for place in np.unique(parts).tolist()]


def partial_scores(one: Looked, weights: Mapping[str, float], damping: NDArray[np.float32]) -> NDArray[np.float32]:
    """BM25 of every text of a part, for picking."""
    scores = np.zeros(one.part.size, np.float32)
    for word, weight in weights.items():
        posting = one.part.posting(word)
        if posting is None:
            continue
        times = posting.times.astype(np.float32)
        if posting.positions is None:
            below = damping + times
            times *= np.float32(weight)
            times /= below
            scores += times
        else:
            below = damping[posting.positions]
            below += times
            times *= np.float32(weight)
            times /= below
            scores[posting.positions] += times
    return scores


def fitting(one: Looked, query: Query, scope: Scope, found: NDArray[np.intp]) -> Marks:
    """Which of some texts of a part may be hits."""
    fits = np.ones(len(found), np.bool_) if one.known is None else one.known[found]
    if query.type is not None:
        fits &= one.part.columns["types"][found] == documents.number(query.type)
    if not one.part.example and (allowed := scope.allowed(one.part.columns)) is not None:
        fits &= allowed[found]
    for words, wanted in ((query.unwanted, False), (query.wanted, True)):
        if words:
            marks = np.zeros(one.part.size, np.bool_)
            for word in set(words):
                if (posting := one.part.posting(word)) is not None:
                    posting.mark(marks)
            fits &= marks[found] == wanted
    return fits


def best(
    conn: sa.Connection, picked: Picked, query: Query, known: Known, least_score: float, most: int
) -> list[Hit]:
    """What was picked, as rank-bm25 scores it; what has been dropped is left out."""
    counts: list[dict[str, int]] = []
    lengths: list[int] = []
    texts: list[tuple[bool, int]] = []
    for part, positions in picked:
        held: list[dict[str, int]] = [{} for _ in positions]
        for word in known.worth:
            if (posting := part.posting(word)) is not None:
                for found, times in zip(held, posting.at(positions).tolist(), strict=True):
                    found[word] = times
        counts += held
        lengths += part.columns["lengths"][positions].tolist()
        texts += [(part.example, id) for id in part.columns["ids"][positions].tolist()]
    scores = bm25.scored(query.words, counts, lengths, known.length, known.worth).tolist()
    hits = [
        Hit(id=id, example=example, score=score)
        for (example, id), score in zip(texts, scores, strict=True)
        if score >= least_score
    ]
    ids = [hit.id for hit in hits if not hit.example]
    there = set(conn.execute(sa.text("select id from blocks where id = any(:ids)"), {"ids": ids}).scalars())
    hits = [hit for hit in hits if hit.example or hit.id in there]
    # Among equals the newest block first, and blocks before examples.
    return sorted(hits, key=lambda hit: (-hit.score, hit.example, -hit.id))[:most]
