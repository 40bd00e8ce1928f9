"""Search over a corpus: rank-bm25 over all texts, weavegen's index in PostgreSQL, tantivy and bm25s on the same texts.

Texts are generated, of words by Zipf's law (bench/generator.py), all of block types that are indexed. Queries
resemble a model's: a dozen words of one text, rare words more often, some with `+`, now and then a `type:`.
weavegen's index runs as in a worker that has answered queries before; the others hold their index in memory.
BENCH_RETRIEVAL=100000 stops at that size; otherwise 1,000,000 texts are searched too, which takes a quarter of an
hour and 10 GB of memory.
"""

import io
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi
from rich.console import Console

from bench import generator
from bench.bars import Figure, table
from bench.installation import home
from weavegen import config, folders
from weavegen.database import Connection, Database, Statement
from weavegen.search import corpus_index, indexing
from weavegen.search.corpus_index import Scope
from weavegen.services import postgres, schema
from weavegen.store import jobs, urls
from weavegen.store.jobs import Order
from weavegen.store.session import pooled
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import Query, parse, words

SMALL, LARGE = 100_000, 1_000_000
INSERTED = 65_536
"""Number of blocks that are indexed as they are recorded: enough for every size of merge to happen once."""
SINGLE = 1_500
"""Blocks inserted one by one, with the queue's trigger and without it."""
QUERIES, COMPARED = 200, 60
"""Queries, and those among them that the exhaustive rank-bm25 also answers."""
WARM = 40
"""Number of other queries that are answered first, to warm up."""
TOP, MOST, LEAST = 3, 25, 2.0
BM25S_MEMORY = 14e9
"""Bytes. With less free memory, bm25s skips a million texts, because it holds all their words as lists."""
TRACES = 100
TYPES = (BlockType.ORIENTATION, BlockType.ACTION, BlockType.EVALUATION, BlockType.DEBUG, BlockType.ERROR)
INSERT = Statement(
    "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
    " compiles, score, tags) values (:trace, :index, 1, 'main', :type, :body, '', 0, 0, true, 1.5, '{}')"
)
COPY = (
    "copy blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining, compiles,"
    " score, tags) from stdin"
)


@dataclass(frozen=True)
class Text:
    number: int
    """Counts from 0; blocks.id is one more."""
    type: BlockType
    body: str


def texts() -> Iterator[Text]:
    """The texts. They are equal in every run."""
    vocabulary, names = generator.vocabulary(200_000, random.Random(1))
    subjects = [generator.Words(1, vocabulary, subject, 200_000) for subject in range(TRACES // 10)]
    identifiers, dice = generator.Words(1, names, None, 200_000), random.Random(2)
    number = 0
    while True:
        subject = subjects[number // 1000 % len(subjects)]  # as traces of several jobs are written concurrently
        type = TYPES[int(5 * dice.random() ** 1.3)]
        if type in (BlockType.ACTION, BlockType.EVALUATION):
            words_of_text = subject.take(30 + int(70 * dice.random() ** 1.5))
            body = generator.function(type[:4], words_of_text, identifiers.take(7 + 3 * int(4 * dice.random())), "add")
        else:
            body = generator.sentences(subject.take(40 + int(150 * dice.random() ** 1.5)))
        yield Text(number, type, body)
        number += 1


def row(text: Text) -> dict[str, object]:
    return {"trace": 1 + text.number // 1000 % TRACES, "index": text.number, "type": str(text.type), "body": text.body}


def run(console: Console) -> list[Figure]:
    with corpus() as db:
        stream = texts()
        figures = [insert(console, db, stream)]
        seen = list(islice(texts(), SMALL))
        load(db, islice(stream, SMALL - INSERTED))
        figures += measure(console, db, seen)
        if int(os.environ.get("BENCH_RETRIEVAL", LARGE)) >= LARGE:
            began = time.perf_counter()
            load(db, islice(stream, LARGE - SMALL))
            console.print(f"\n{LARGE - SMALL:,} texts more loaded and indexed in {time.perf_counter() - began:.0f} s")
            figures += measure_large(console, db, seen)
        return figures


@contextmanager
def corpus() -> Iterator[Database]:
    """An empty database with a hundred traces, in a folder of its own."""
    with home() as folder:
        before = dict(os.environ)
        os.environ["WEAVEGEN_HOME"] = str(folder)
        settings = config.load()
        folders.prepare(settings)
        postgres.start(settings)
        try:
            schema.upgrade(urls.database_url(settings))
            db = pooled(urls.database_url(settings))
            with db.begin() as conn:
                for number in range(10):
                    orders = [Order("a.py", "x = 1")] * (TRACES // 10)
                    name = f"job {number}"
                    jobs.enqueue(conn, orders, name=name, agent="weave", model=None, seed=1, settings={}, version="0")
            yield db
            db.close()
        finally:
            postgres.stop(settings)
            os.environ.clear()
            os.environ |= before


# ----------------------------------------------------------------------------------------- insertion


def insert(console: Console, db: Database, stream: Iterator[Text]) -> Figure:
    """The index's cost per recorded block in ms: the queue, sealing and all merging."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for number, text in enumerate(islice(stream, SINGLE)):
        queued = number % 2 == 0
        with db.begin() as conn:
            if not queued:
                conn.execute(Statement("set local session_replication_role = replica"))
            began = time.perf_counter()
            conn.execute(INSERT, row(text))
            spent[queued].append(time.perf_counter() - began)
            conn.execute(Statement("set local session_replication_role = origin"))
            if not queued:
                conn.execute(Statement("insert into corpus_queue select max(id) from blocks"))
    queueing = 1000 * (statistics.median(spent[True]) - statistics.median(spent[False]))
    indexing_seconds = waited = 0.0
    left = INSERTED - SINGLE
    while left:
        size = min(indexing.SEGMENT_BLOCKS[0], left)
        with db.begin() as conn:
            conn.execute_each(INSERT, [row(text) for text in islice(stream, size)])
        left -= size
        began = time.perf_counter()
        drain(db)
        waited = max(waited, time.perf_counter() - began)
        indexing_seconds += time.perf_counter() - began
    each = 1000 * indexing_seconds / INSERTED
    rows = [["queue (in the block's own transaction)", queueing], ["sealing and merging (in the background)", each]]
    console.print(table(f"\nWhat the index costs, ms a block, {INSERTED:,} blocks as they come", ("", "ms"), rows))
    console.print(f"the longest piece of it, all merges at once: {waited:.1f} s")
    return Figure("insertion, all of the index's work a block", queueing + each, "ms", at_most=3)


def drain(db: Database) -> None:
    """Index all waiting blocks."""
    while True:
        with db.begin() as conn:
            if not indexing.work(conn):
                return


def load(db: Database, stream: Iterator[Text]) -> None:
    """Write and index many blocks."""
    while batch := list(islice(stream, 50_000)):
        with db.begin() as conn, conn.cursor() as cursor, cursor.copy(COPY) as into:
            lines = io.StringIO()
            for text in batch:
                values = row(text)
                lines.write(
                    f"{values['trace']}\t{values['index']}\t1\tmain\t{text.type}\t{generator.text(text.body)}\t\t0\t0\tt\t"
                    "1.5\t{}\n"
                )
            into.write(lines.getvalue())
        drain(db)
    with db.with_autocommit(True).connect() as conn:
        conn.execute(Statement("analyze"))


# ------------------------------------------------------------------------------------------- queries


def queries(seen: Sequence[Text], n: int, seed: int) -> list[str]:
    """Queries like a model's."""
    dice = random.Random(seed)
    some = dice.sample(seen, 2_000)
    holding = Counter(word for text in some for word in set(words(text.body)))
    made: list[str] = []
    while len(made) < n:
        text = dice.choice(some)
        listed = sorted(set(words(text.body)))
        ranks = {word: dice.random() ** holding[word] ** 0.5 for word in listed}  # a draw by weight, each word once
        chosen = sorted(listed, key=lambda word: -ranks[word])[:12]
        terms = [f"+{word}" if dice.random() < 0.25 else word for word in chosen]
        query = " ".join([*([f"type:'{text.type}'"] if dice.random() < 0.2 else []), *terms])
        if parse(query) is not None:
            made.append(query)
    return made


Engine = Callable[[Query], list[int]]
"""The numbers of the best texts for a query."""


def ours(conn: Connection) -> Engine:
    def search(query: Query) -> list[int]:
        hits = corpus_index.search(conn, query, Scope(), least_score=LEAST, top_k=MOST)
        return [hit.id - 1 for hit in hits]

    return search


class Exhaustive:
    """rank-bm25 over a list of all texts, with the query's filters."""

    def __init__(self, seen: Sequence[Text]) -> None:
        split = [words(text.body) for text in seen]
        self.scorer = BM25Okapi(split)
        self.types = np.array([TYPES.index(text.type) for text in seen])
        self.seconds = 0.0
        """Scores of the last query, without the filters."""

    def __call__(self, query: Query) -> list[int]:
        began = time.perf_counter()
        scores = self.scorer.get_scores(query.words)
        self.seconds = time.perf_counter() - began
        if query.type is not None:
            scores[self.types != TYPES.index(query.type)] = 0
        if query.wanted:
            counts = self.scorer.doc_freqs
            scores[[not any(word in counter for word in query.wanted) for counter in counts]] = 0
        best = np.argsort(-scores, kind="stable")[:MOST]
        return [int(place) for place in best if scores[place] >= LEAST]


def with_tantivy(all_texts: Iterator[Text]) -> Engine:
    import tantivy

    build = tantivy.SchemaBuilder()
    build.add_integer_field("number", stored=True)
    build.add_text_field("type", tokenizer_name="raw", index_option="basic")
    build.add_text_field("body", index_option="freq")
    form = build.build()
    index = tantivy.Index(form)
    writer = index.writer(500_000_000, 2)
    for text in all_texts:
        document = tantivy.Document()
        document.add_integer("number", text.number)
        document.add_text("type", text.type)
        document.add_text("body", " ".join(words(text.body)))
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def any_of(some: Sequence[str]) -> Any:
        terms = [tantivy.Query.term_query(form, "body", word, "freq") for word in some]
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])

    def search(query: Query) -> list[int]:
        parts = [(tantivy.Occur.Should, any_of(query.plain))] if query.plain else []
        if query.wanted:
            parts.append((tantivy.Occur.Must, tantivy.Query.boost_query(any_of(query.wanted), 2.0)))
        asked = tantivy.Query.boolean_query(parts)
        if query.type is not None:
            typed = tantivy.Query.const_score_query(
                tantivy.Query.term_query(form, "type", str(query.type), "basic"), 0.0
            )
            asked = tantivy.Query.boolean_query([(tantivy.Occur.Must, asked), (tantivy.Occur.Must, typed)])
        hits = searcher.search(asked, MOST).hits
        return [searcher.doc(address)["number"][0] for _, address in hits]

    return search


def with_bm25s(all_texts: Iterator[Text]) -> Engine:
    import bm25s

    vocabulary: dict[str, int] = {}
    ids, types = [], []
    for text in all_texts:
        ids.append([vocabulary.setdefault(word, len(vocabulary)) for word in words(text.body)])
        types.append(TYPES.index(text.type))
    scorer = bm25s.BM25(method="robertson", k1=1.5, b=0.75)
    scorer.index(bm25s.tokenization.Tokenized(ids=ids, vocab=vocabulary), show_progress=False)
    of_type = np.array(types)
    del ids

    def search(query: Query) -> list[int]:
        mask: NDArray[np.float32] | None = None
        if query.type is not None:
            mask = (of_type == TYPES.index(query.type)).astype(np.float32)
        if query.wanted:
            any_wanted = (scorer.get_scores(list(query.wanted)) > 0).astype(np.float32)
            mask = any_wanted if mask is None else mask * any_wanted
        places, scores = scorer.retrieve(
            [query.words], k=MOST, weight_mask=mask, show_progress=False, n_threads=0, return_as="tuple"
        )
        return [int(place) for place, score in zip(places[0], scores[0], strict=True) if score > 0]

    return search


@dataclass(frozen=True)
class Timed:
    median: float
    """Milliseconds."""
    p95: float
    found: list[list[int]]


def timed(engine: Engine, asked: Sequence[str]) -> Timed:
    spent, found = [], []
    for text in asked:
        query = parse(text)
        assert query is not None
        began = time.perf_counter()
        found.append(engine(query))
        spent.append(1000 * (time.perf_counter() - began))
    return Timed(statistics.median(spent), statistics.quantiles(spent, n=20)[-1], found)


def warm(db: Database, seen: Sequence[Text], asked: Sequence[str]) -> Timed:
    """weavegen's index, in a process that has answered queries before."""
    with db.with_autocommit(True).connect() as conn:
        timed(ours(conn), queries(seen, WARM, seed=8))
        return timed(ours(conn), asked)


def agreement(one: Timed, other: Timed) -> float:
    """Percent of the best three of `other` that are also among the best three of `one`."""
    pairs = [(set(a[:TOP]), set(b[:TOP])) for a, b in zip(one.found, other.found, strict=False) if b]
    return 100 * statistics.fmean(len(a & b) / len(b) for a, b in pairs)


def measure(console: Console, db: Database, seen: Sequence[Text]) -> list[Figure]:
    """100,000 texts."""
    asked = queries(seen, QUERIES, seed=7)
    console.print("\nqueries such as  " + asked[0])
    mine = warm(db, seen, asked)
    exhaustive = Exhaustive(seen)
    spent: list[float] = []

    def search(query: Query) -> list[int]:
        best = exhaustive(query)
        spent.append(1000 * exhaustive.seconds)
        return best

    theirs = timed(search, asked[:COMPARED])
    theirs = Timed(statistics.median(spent), statistics.quantiles(spent, n=20)[-1], theirs.found)
    rows = [["ours", mine.median, mine.p95, agreement(mine, theirs)], ["rank-bm25", theirs.median, theirs.p95, 100.0]]
    for name, make in (("tantivy", with_tantivy), ("bm25s", with_bm25s)):
        other = timed(make(iter(seen)), asked)
        rows.append([name, other.median, other.p95, agreement(other, theirs)])
    columns = ("", "median", "p95", "top-3 agreement, %")
    console.print(table(f"\n{len(seen):,} texts, ms a query, {QUERIES} queries", columns, rows))
    return [
        Figure("top-3 agreement with rank-bm25", agreement(mine, theirs), "%", at_least=95),
        Figure("times as fast as rank-bm25, median", theirs.median / mine.median, "x", at_least=20),
        Figure("a query over 100,000 texts, p95", mine.p95, "ms", at_most=60),
    ]


def measure_large(console: Console, db: Database, seen: Sequence[Text]) -> list[Figure]:
    """1,000,000 texts."""
    asked = queries(seen, QUERIES, seed=7)
    mine = warm(db, seen, asked)
    rows = [["ours", mine.median, mine.p95]]
    for name, make in (("tantivy", with_tantivy), ("bm25s", with_bm25s)):
        if name == "bm25s" and psutil.virtual_memory().available < BM25S_MEMORY:
            console.print(f"\nbm25s is left out: its index needs {BM25S_MEMORY / 1e9:.0f} GB of free memory")
            continue
        other = timed(make(islice(texts(), LARGE)), asked)
        rows.append([name, other.median, other.p95])
    console.print(table(f"\n{LARGE:,} texts, ms a query, {QUERIES} queries", ("", "median", "p95"), rows))
    return [Figure("a query over 1,000,000 texts, p95", mine.p95, "ms", at_most=150)]
