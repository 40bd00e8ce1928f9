"""Would a vector index find what BM25 misses? Known blocks, looked up by what somebody says of them.

Every example block has a description, which is not part of its text. The description is the query; the block that it
describes is to be found among the texts of all examples. Compared are BM25 as retrieval scores it, vectors of word
counts (TF-IDF, reduced by an SVD), and, if BENCH_STUDENT names the folder of a model and scripts/trl.sh was run, the
mean of the model's last hidden states. Each kind of vector also stands beside BM25: by the sum of reciprocal ranks.
"""

import json
import os
import subprocess
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi
from rich.console import Console
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from bench.bars import Figure, in_percent, table
from bench.loop import PYTHON, ROOT
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.evaluator.evaluation import share
from weavegen.search.examples import read
from weavegen.trace.query import words

TOP = 3
"""Blocks that a prompt holds."""
DIMENSIONS = 64
RANK_OFFSET = 60
"""In a sum of reciprocal ranks (Cormack, Clarke, Buettcher 2009), as its authors chose it."""
Scores = NDArray[np.float64]
"""For each query, how near each text is."""


def run(console: Console) -> list[Figure]:
    """Look up every example by its description. There is no bar: the figures decide what retrieval uses."""
    examples = [example for _, example in read(BOOTSTRAPS / "examples")]
    found = methods([one.description for one in examples], [one.body for one in examples])
    ranks = {name: own_ranks(scores) for name, scores in found.items()}
    shares = {name: share([rank < TOP for rank in places]) for name, places in ranks.items()}
    rows = [
        [name, in_percent(shares[name]), f"{np.mean([1 / (1 + rank) for rank in ranks[name]]):.2f}"] for name in ranks
    ]
    title = f"\n{len(examples)} example blocks, each looked up by its description"
    console.print(table(title, ("", f"in the best {TOP} [95%]", "mean reciprocal rank"), rows))
    best = max((name for name in ranks if name != "BM25"), key=lambda name: shares[name].value)
    gain = 100 * (shares[best].value - shares["BM25"].value)
    return [Figure(f"gain of the best other ({best}) over BM25", gain, "points")]


def methods(queries: Sequence[str], texts: Sequence[str]) -> dict[str, Scores]:
    """The scores of all queries by each way to search."""
    scorer = BM25Okapi([words(text) for text in texts])
    found = {"BM25": np.array([scorer.get_scores(words(query)) for query in queries], dtype=float)}
    vectors = {"word counts": by_counts(queries, texts)}
    if folder := os.environ.get("BENCH_STUDENT"):
        vectors["hidden states"] = by_model(folder, queries, texts)
    for name, scores in vectors.items():
        found[name] = scores
        found[f"BM25 with {name}"] = fused([found["BM25"], scores])
    return found


def by_counts(queries: Sequence[str], texts: Sequence[str]) -> Scores:
    """Cosines of TF-IDF vectors, reduced to fewer dimensions than there are texts."""
    counts = TfidfVectorizer(analyzer=words, sublinear_tf=True).fit(texts)
    reduced = TruncatedSVD(min(DIMENSIONS, len(texts) - 1), random_state=0).fit(counts.transform(texts))
    return cosines(reduced.transform(counts.transform(queries)), reduced.transform(counts.transform(texts)))


def by_model(folder: str, queries: Sequence[str], texts: Sequence[str]) -> Scores:
    """Cosines of a model's vectors, from the interpreter that has PyTorch."""
    command = [PYTHON, "-m", "bench.embed", folder]
    asked = json.dumps([*queries, *texts]).encode()
    done = subprocess.run(command, check=True, cwd=ROOT, input=asked, stdout=subprocess.PIPE)
    vectors = np.array(json.loads(done.stdout), dtype=float)
    vectors -= vectors.mean(axis=0)  # hidden states of a language model share a large part, which says nothing
    return cosines(vectors[: len(queries)], vectors[len(queries) :])


def cosines(queries: Scores, texts: Scores) -> Scores:
    lengths = [np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-12) for some in (queries, texts)]
    return np.asarray((queries / lengths[0]) @ (texts / lengths[1]).T, dtype=float)


def fused(several: Sequence[Scores]) -> Scores:
    """The sum of reciprocal ranks: how two indexes are used side by side without a common scale."""
    ranks = [np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable") for scores in several]
    return np.asarray(sum(1 / (RANK_OFFSET + 1 + rank) for rank in ranks), dtype=float)


def own_ranks(scores: Scores) -> list[int]:
    """For each query, how many texts score at least as much as its own, which has the same number."""
    return [int((row >= row[number]).sum()) - 1 for number, row in enumerate(scores)]
