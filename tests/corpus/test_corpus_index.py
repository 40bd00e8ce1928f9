"""The index of the whole corpus with a real PostgreSQL: what queries find, also while the index is built."""

import datetime
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rank_bm25 import BM25Okapi
from typer.testing import CliRunner

import tasks.periodic
from tests.support import ROOT
from tests.support.waiting import until
from tests.support.worker import scalar
from weavegen.audit import check
from weavegen.cli.app import app
from weavegen.database import Database, Statement
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.errors import UsageError
from weavegen.kernel.steps import Execute, Retrieve
from weavegen.search import corpus_index, indexing, retrieval
from weavegen.search.corpus_index import Scope
from weavegen.search.examples import read
from weavegen.search.postings import unpack_histogram
from weavegen.search.user_search import search_texts
from weavegen.store import blocks, documents, examples, jobs, steps, views
from weavegen.store.jobs import Order
from weavegen.store.session import pooled
from weavegen.trace.query import parse, words

VOCABULARY = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(400)]
TYPES = ["action", "orientation", "error", "observation", "evaluation"]
DAY = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
INSERT = Statement(
    "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
    " compiles, ran, score, tags, created_at) values (:trace, :index, 1, 'main', :type, :body, :body, 0, 0,"
    " :compiles, :ran, :score, '{}', :at)"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of 8, 64 and 512 blocks, so that a thousand blocks use all levels."""
    monkeypatch.setattr(indexing, "SEGMENT_BLOCKS", (8, 64, 512))


@pytest.fixture
def db(database: str) -> Iterator[Database]:
    """Two jobs with two traces each, without blocks."""
    db = pooled(database)
    with db.begin() as conn:
        for name in ("t", "u"):
            orders = [Order("a.py", "x = 1")] * 2
            jobs.enqueue(conn, orders, name=name, agent="weave", model=None, seed=1, settings={}, version="0")
    yield db
    db.close()


def write(db: Database, first: int, end: int, step: int = 20) -> None:
    """Write blocks [first, end) of each of the four traces, `step` at a time. No word is in half of the blocks."""
    dice = random.Random(first)
    weights = [1 / (n + 12) for n in range(len(VOCABULARY))]
    for start in range(first, end, step):
        rows = []
        for index in range(start, min(start + step, end)):
            for trace in (1, 2, 3, 4):
                body = " ".join(dice.choices(VOCABULARY, weights, k=dice.randrange(0, 40))) or "..."
                rows.append(
                    {
                        "trace": trace,
                        "index": index,
                        "type": TYPES[index % 5],
                        "body": body,
                        "compiles": index % 7 > 0,
                        "ran": [True, False, None][index % 3],
                        "score": None if index % 11 == 0 else index % 10 - 5,
                        "at": DAY + datetime.timedelta(hours=index),
                    }
                )
        with db.begin() as conn:
            conn.execute_each(INSERT, rows)


def add_block(db: Database, body: str, trace: int = 1, index: int = 9000, **values: object) -> int:
    """Add one block. Returns its id."""
    given = {"type": "action", "compiles": True, "ran": True, "score": 1.0, "at": DAY}
    with db.begin() as conn:
        conn.execute(INSERT, {"trace": trace, "index": index, "body": body, **given, **values})
        newest = Statement("select max(id) from blocks where trace_id = :trace and index = :index")
        return int(conn.execute(newest, {"trace": trace, "index": index}).scalar_one())


def index_all(db: Database) -> None:
    while work(db):
        pass


def work(db: Database) -> bool:
    with db.begin() as conn:
        return indexing.work(conn)


def found(
    db: Database, query: str, scope: Scope | None = None, least: float = 0.01, most: int = 5000
) -> dict[int, float]:
    """Scores by block id, best first; those of examples by -id."""
    parsed = parse(query)
    assert parsed is not None
    with db.connect() as conn:
        hits = corpus_index.search(conn, parsed, scope or Scope(), least_score=least, top_k=most)
    return {-hit.id if hit.example else hit.id: hit.score for hit in hits}


def exhaustive(db: Database, query: str, where: str = "true") -> dict[int, float]:
    """Scores of rank-bm25 for the blocks that a condition selects, without blocks that contain an excluded word."""
    parsed = parse(query)
    assert parsed is not None
    retrievable = "type in ('orientation', 'action', 'evaluation', 'debug', 'error')"
    with db.connect() as conn:
        rows = conn.execute(
            Statement(
                f"select b.id, body from blocks b join traces t on t.id = trace_id where {retrievable} and {where}"
            )
        ).all()
    scores = BM25Okapi([words(row.body) or [""] for row in rows]).get_scores(parsed.words)
    return {row.id: score for row, score in zip(rows, scores, strict=True) if score >= 0.01}


def segments(db: Database) -> Counter[int]:
    """Number of segments by level."""
    with db.connect() as conn:
        rows = conn.execute(Statement("select level from corpus_segments where retired_at is null"))
        return Counter(rows.scalars())


def held(db: Database) -> list[int]:
    """Ids of all blocks in the index, in segments or in the queue."""
    with db.connect() as conn:
        rows = conn.execute(Statement("select ids from corpus_segments where retired_at is null")).scalars()
        ids = [id for data in rows for id in np.frombuffer(data, "<i8").tolist()]
        return sorted([*ids, *conn.execute(Statement("select block_id from corpus_queue")).scalars()])


def retrievable(db: Database) -> list[int]:
    with db.connect() as conn:
        query = Statement("select id from blocks where type <> 'observation' order by id")
        return list(conn.execute(query).scalars())


QUERIES = ["wordaa wordbb wordhr", "+wordaz wordac +wordbq", "wordgg wordgg nosuchword", "wordae -wordaa wordad"]


@pytest.mark.parametrize("query", QUERIES[:3])
def test_every_block_scores_as_with_rank_bm25(db: Database, query: str) -> None:
    write(db, 0, 300)
    expected = exhaustive(db, query)
    parsed = parse(query)
    assert parsed is not None
    if parsed.wanted:
        with_any = exhaustive(db, " ".join(parsed.wanted))
        expected = {id: score for id, score in expected.items() if id in with_any}
    assert found(db, query) == expected  # all of them in the queue
    levels = []
    while work(db):
        levels.append(segments(db))
        if len(levels) % 5 == 0:
            assert found(db, query) == expected
    assert segments(db) == Counter({2: 1, 1: 7})  # 960 blocks
    assert found(db, query) == expected
    assert held(db) == retrievable(db)
    best = sorted(expected, key=lambda id: (-expected[id], -id))
    assert list(found(db, query, most=25)) == best[:25]


def test_segments_are_merged_by_eight(db: Database) -> None:
    for start in range(0, 200, 2):  # 8 blocks a time, of which 4 in 5 can be retrieved
        write(db, start, start + 2)
        work(db)
    index_all(db)
    assert retrievable(db) == held(db)
    assert segments(db) == Counter({2: 1, 1: 2})  # 640 = 512 + 2 * 64
    with db.connect() as conn:
        sizes = conn.execute(
            Statement("select level, documents, words, lengths from corpus_segments where retired_at is null")
        ).all()
    assert sorted(row.documents for row in sizes) == [64, 64, 512]
    assert all(row.words == np.frombuffer(row.lengths, "<u4").sum() for row in sizes)
    for query in QUERIES[:1]:
        assert found(db, query) == exhaustive(db, query)


def test_scopes_have_their_own_statistics(db: Database) -> None:
    write(db, 0, 120)
    index_all(db)
    write(db, 120, 123)
    query = "wordac wordbb wordcz"
    assert found(db, query, Scope(job_id=2)) == exhaustive(db, query, "t.job_id = 2")
    assert found(db, query, Scope(trace_id=3)) == exhaustive(db, query, "trace_id = 3")
    assert found(db, query, Scope(trace_id=99)) == {}


def test_the_weight_of_a_word_in_most_texts_equals_rank_bm25s(db: Database) -> None:
    write(db, 0, 160)
    with db.begin() as conn:
        conn.execute(Statement("update blocks set body = 'always ' || body where index % 4 > 0"))
    query = "always wordbb"
    expected = exhaustive(db, query)
    assert found(db, query) == pytest.approx(expected, rel=1e-9)
    index_all(db)
    assert held(db) == retrievable(db)
    with db.begin() as conn:  # texts in the queue are not part of the mean over all words
        conn.execute(Statement("delete from blocks where id in (select block_id from corpus_queue)"))
    assert found(db, query) == pytest.approx(exhaustive(db, query), rel=1e-9)
    of_job = exhaustive(db, query, "t.job_id = 1")
    near = found(db, query, Scope(job_id=1))
    assert near.keys() == of_job.keys()
    assert list(near)[:3] == sorted(of_job, key=lambda id: (-of_job[id], -id))[:3]


def test_a_scope_in_the_queue_has_the_mean_idf_of_its_own_words(db: Database) -> None:
    write(db, 0, 60)
    index_all(db)
    with db.begin() as conn:
        jobs.enqueue(conn, [Order("b.py", "")], name="v", agent="weave", model=None, seed=1, settings={}, version="0")
    for index, rare in enumerate(("wordaa wordba wordca", "wordab wordbb wordcb", "wordac wordbc wordcc")):
        add_block(db, f"always {rare}", trace=5, index=index)
    query = "always wordab"
    assert found(db, query, Scope(job_id=3)) == pytest.approx(exhaustive(db, query, "t.job_id = 3"), rel=1e-9)
    assert len(found(db, "always", Scope(trace_id=5), least=0.0)) == 3


def test_filters_lose_no_hits(db: Database) -> None:
    write(db, 0, 200)
    index_all(db)
    write(db, 200, 202)
    everything = found(db, "wordaa wordab wordac")
    with db.connect() as conn:
        rows = {
            row.id: row
            for row in conn.execute(
                Statement(
                    "select id, trace_id, index as place, type, body, score, compiles, ran, created_at from blocks"
                )
            )
        }

    def those(keep: Callable[[Any], bool], most: int = 5000) -> dict[int, float]:
        return dict([(id, score) for id, score in everything.items() if keep(rows[id])][:most])

    assert found(db, "wordaa type:'error' wordab wordac", most=10) == those(lambda row: row.type == "error", 10)
    assert found(db, "wordaa wordab wordac -wordad -wordbb", most=10) == those(
        lambda row: not {"wordad", "wordbb"} & set(row.body.split()), 10
    )
    assert found(db, "wordaa wordab wordac", least=2.0) == {id: s for id, s in everything.items() if s >= 2.0}
    until = DAY + datetime.timedelta(hours=50)
    assert found(db, "wordaa wordab wordac", Scope(until=until)) == those(lambda row: row.created_at < until)
    memory: dict[str, Any] = {"memory_of": 1, "before": 60, "memory": 2.0}
    assert found(db, "wordaa wordab wordac", Scope(**memory)) == those(
        lambda row: (
            row.place < 60
            if row.trace_id == 1
            else row.score is not None and row.score >= 2.0 and row.compiles and row.ran is not False
        )
    )
    assert {rows[id].trace_id for id in found(db, "wordaa", Scope(job_id=1, **memory))} == {1, 2}


def test_examples_are_found_with_and_without_blocks(db: Database) -> None:
    with db.begin() as conn:
        examples.load(conn, read(BOOTSTRAPS / "examples"))
    write(db, 0, 20)
    index_all(db)
    query = "traceback KeyError header column wordaa"
    assert min(found(db, query)) < 0 < max(found(db, query))
    assert max(found(db, query, Scope(blocks=False))) < 0
    assert min(found(db, query, Scope(examples=False))) > 0
    assert (
        found(db, "type:'observation-inference' view", Scope(blocks=False)).keys()
        <= found(db, "view", Scope(blocks=False)).keys()
    )


def test_transactions_that_commit_out_of_order_lose_no_block(db: Database) -> None:
    write(db, 0, 10)
    index_all(db)
    slow = db.open()
    slow.execute(
        INSERT,
        {
            "trace": 1,
            "index": 500,
            "type": "action",
            "body": "zeppelin",
            "compiles": True,
            "ran": True,
            "score": 1.0,
            "at": DAY,
        },
    )
    write(db, 20, 60)
    index_all(db)
    assert found(db, "zeppelin") == {}
    slow.commit()
    slow.close()
    assert len(found(db, "zeppelin")) == 1
    write(db, 60, 80)
    index_all(db)
    assert len(found(db, "zeppelin")) == 1
    assert held(db) == retrievable(db)


def test_a_dropped_block_is_not_a_hit(db: Database) -> None:
    write(db, 0, 50)
    sealed = add_block(db, "zeppelin sealed", index=50)
    write(db, 51, 60)
    index_all(db)
    queued = add_block(db, "zeppelin queued", index=60)
    kept = add_block(db, "zeppelin kept", trace=2, index=60)
    assert found(db, "zeppelin").keys() == {sealed, queued, kept}
    with db.begin() as conn:
        blocks.drop_from(conn, 1, 50)
    assert found(db, "zeppelin").keys() == {kept}
    write(db, 100, 120)
    index_all(db)
    assert found(db, "zeppelin").keys() == {kept}
    with db.begin() as conn:
        indexing.rebuild(conn)
    assert held(db) == retrievable(db)
    assert found(db, "zeppelin") == exhaustive(db, "zeppelin")


def test_dropped_blocks_do_not_take_the_places_of_others(db: Database) -> None:
    kept = add_block(db, "zeppelin " + "over the bridge " * 20, trace=2)
    for index in range(120):
        add_block(db, "zeppelin", index=index)
    write(db, 200, 240)
    index_all(db)
    with db.begin() as conn:
        blocks.drop_from(conn, 1, 0)
    assert found(db, "zeppelin", most=3).keys() == {kept}


def test_queries_see_the_same_while_segments_are_built_and_merged(db: Database) -> None:
    write(db, 0, 260)
    query = "wordaa wordbb wordhr wordcc"
    expected = exhaustive(db, query)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(index_all, db)
        queries = 0
        while not done.done() or queries == 0:
            assert found(db, query) == expected
            queries += 1
        done.result()
    assert found(db, query) == expected
    assert held(db) == retrievable(db)


def test_two_concurrent_indexers_index_everything_once(db: Database) -> None:
    together = threading.Barrier(3)

    def indexer() -> None:
        together.wait()
        for _ in range(40):
            work(db)

    def writer() -> None:
        together.wait()
        write(db, 0, 160, step=4)

    with ThreadPoolExecutor(3) as pool:
        for task in [pool.submit(indexer), pool.submit(indexer), pool.submit(writer)]:
            task.result()
    index_all(db)
    assert held(db) == retrievable(db)
    assert found(db, QUERIES[0]) == exhaustive(db, QUERIES[0])
    check_statistics(db)


def check_statistics(db: Database) -> None:
    """The statistics are those of the blocks in segments."""
    with db.connect() as conn:
        bodies = conn.execute(
            Statement(
                "select body from blocks b where type <> 'observation' "
                "and not exists (select from corpus_queue q where q.block_id = b.id)"
            )
        ).scalars()
        counts = Counter(word for body in bodies for word in set(words(body) or [""]))
        rows = conn.execute(Statement("select word, documents from corpus_words")).all()
        assert {row.word: row.documents for row in rows} == counts
        row = conn.execute(Statement("select documents, spread, average_rarity from corpus_statistics")).one()
    assert unpack_histogram(row.spread) == Counter(counts.values())


def test_a_rebuilt_index_is_the_same(db: Database) -> None:
    for start in range(0, 120, 10):
        write(db, start, start + 10)
        work(db)
    before = {query: found(db, query) for query in QUERIES}
    check_statistics(db)
    told: list[tuple[int, int]] = []
    with db.begin() as conn:
        assert indexing.rebuild(conn, lambda done, of: told.append((done, of))) == len(retrievable(db))
        with db.connect() as other:  # queries continue with the old index
            assert other.execute(
                Statement("select count(*) from corpus_segments where retired_at is null")
            ).scalar_one()
    assert told == sorted(told)
    assert held(db) == retrievable(db)
    assert {query: found(db, query) for query in QUERIES} == before
    check_statistics(db)


def test_blocks_may_be_dropped_while_the_index_is_rebuilt(db: Database) -> None:
    add_block(db, "zeppelin gone", index=1)
    kept = add_block(db, "zeppelin kept", trace=2)

    def rebuild() -> None:
        with db.begin() as conn:
            indexing.rebuild(conn)

    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with ThreadPoolExecutor(1) as pool:
        with db.begin() as conn:
            blocks.drop_from(conn, 1, 0)
            done = pool.submit(rebuild)
            until(lambda: scalar(db, waiting) == 1, "the rebuild does not wait for the dropped block")
        done.result()
    assert held(db) == [kept]


def test_merged_segments_are_deleted_later(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for start in range(0, 40, 2):
        write(db, start, start + 2)
        work(db)
    index_all(db)
    left = "select count(*) from corpus_segments where retired_at is not null"
    without = "select count(*) from corpus_postings where segment not in (select id from corpus_segments)"
    with db.connect() as conn:
        assert conn.execute(Statement(left)).scalar_one() > 0
    monkeypatch.setattr(indexing, "RETIRED_SECONDS", 0.0)
    work(db)
    with db.connect() as conn:
        assert conn.execute(Statement(left)).scalar_one() == 0
        assert conn.execute(Statement(without)).scalar_one() == 0
    assert found(db, QUERIES[0]) == exhaustive(db, QUERIES[0])


def test_words_and_counts_of_any_size_are_indexed(db: Database) -> None:
    long = add_block(db, "x" * 9000, index=1)
    often = add_block(db, "many " * 3000, index=2)
    write(db, 10, 30)
    index_all(db)
    assert found(db, "x" * 3000).keys() == {long}
    assert found(db, "many").keys() == {often}


def test_the_task_indexes_the_queue(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks.periodic, "database", lambda: db)
    write(db, 0, 100)
    while tasks.periodic.index() != "0 segments made":
        pass
    assert sum(segments(db).values()) > 0
    assert held(db) == retrievable(db)


# ------------------------------------------------------------------------------------------- an agent's memory


def test_an_agents_memory_covers_its_job_or_everything(db: Database) -> None:
    write(db, 0, 40)
    own, late, mate, stranger = (
        add_block(db, "zeppelin", trace=1, index=50),
        add_block(db, "zeppelin", trace=1, index=90),
        add_block(db, "zeppelin", trace=2, index=50),
        add_block(db, "zeppelin", trace=3, index=50),
    )
    add_block(db, "zeppelin", trace=2, index=51, score=0.4)
    add_block(db, "zeppelin", trace=2, index=52, ran=False)
    index_all(db)

    def retrieved(**values: object) -> set[int]:
        step = Retrieve(query="zeppelin", before=60, top_k_hits=25, least_score=1.0, limit=3, **values)  # type: ignore[arg-type]
        with db.connect() as conn:
            return {hit.id for hit in retrieval.search(conn, 1, step)}

    assert retrieved() == {own}
    assert retrieved(memory=0.5) == {own, mate}
    assert retrieved(memory=0.5, memory_scope="all") == {own, mate, stranger}
    assert late not in retrieved(memory=0.5, memory_scope="all")


def test_a_fork_finds_the_past_that_it_shares(db: Database) -> None:
    """Trace 3, of another job, is a fork of trace 1, and trace 4 a fork of trace 3."""
    write(db, 0, 40)
    with db.begin() as conn:
        conn.execute(Statement("update traces set fork_of = 1, fork_at = 60 where id = 3"))
        conn.execute(Statement("update traces set fork_of = 3, fork_at = 55 where id = 4"))
    past, shared, later, own, window = (
        add_block(db, "zeppelin", trace=trace, index=index, score=-9.0)
        for trace, index in ((1, 50), (1, 57), (1, 70), (3, 61), (4, 90))
    )
    for indexed in (False, True):
        if indexed:
            index_all(db)
        assert found(db, "zeppelin", Scope(trace_id=1)).keys() == {past, shared, later}
        assert found(db, "zeppelin", Scope(trace_id=3)).keys() == {past, shared, own}
        assert found(db, "zeppelin", Scope(trace_id=4)).keys() == {past, window}

        def retrieved(trace: int, before: int, scope: str) -> set[int]:
            step = Retrieve(query="zeppelin", before=before, top_k_hits=25, least_score=0.0, limit=3, memory=0.5)
            with db.connect() as conn:
                hits = retrieval.search(conn, trace, msgspec.structs.replace(step, memory_scope=scope))
                return {hit.id for hit in hits}

        for scope in ("job", "all"):
            assert retrieved(3, 80, scope) == {past, shared, own}
            assert retrieved(3, 57, scope) == {past}
            assert retrieved(4, 80, scope) == {past}


@pytest.mark.parametrize(("before", "wrong"), [(60, 0), (57, 1)])
def test_the_audit_knows_what_a_fork_shares(db: Database, before: int, wrong: int) -> None:
    with db.begin() as conn:
        conn.execute(Statement("update traces set fork_of = 1, fork_at = 58 where id = 2"))
        conn.execute(Statement("update traces set fork_of = 2, fork_at = 60 where id = 3"))
    step = Retrieve(query="zeppelin", before=60, top_k_hits=25, least_score=0.0, limit=3, memory=0.5)
    past = {add_block(db, "zeppelin", index=50, score=None), add_block(db, "zeppelin", index=57, score=None)}
    with db.begin() as conn:
        conn.execute(
            Statement(
                "insert into ticks (trace_id, number, subagent, first_block, deadline, clock) "
                "values (3, 1, 'main', 0, 9, 0)"
            )
        )
        [message] = steps.insert_ready(conn, 3, 1, 0, [(0, step)], None, 60)
        hits = retrieval.search(conn, 3, step)
        assert {hit.id for hit in hits} == past
        retrieval.save(conn, 3, message.step_id, msgspec.structs.replace(step, before=before), hits)
        conn.execute(Statement("update steps set status = 'done', result = '[1, 2]'"))
        found = list(check.Scan(conn, check.Scope(), 60).rows(check.sql_check("retrievals").sql))
    assert [row[2] for row in found] == ["1 of its hits are blocks that it could not see"] * wrong


def test_a_retrieved_block_may_be_dropped_meanwhile(db: Database) -> None:
    write(db, 0, 40)
    kept, gone = (add_block(db, "zeppelin kept", trace=1, index=50), add_block(db, "zeppelin gone", trace=2, index=50))
    step = Retrieve(query="zeppelin", before=60, top_k_hits=25, least_score=1.0, limit=3, memory=0.5)
    with db.begin() as conn:
        conn.execute(
            Statement(
                "insert into ticks (trace_id, number, subagent, first_block, deadline, clock) "
                "values (1, 1, 'main', 0, 9, 0)"
            )
        )
        [message] = steps.insert_ready(conn, 1, 1, 0, [(0, Execute(op="begin"))], None, 60)
        hits = retrieval.search(conn, 1, step)
    assert {hit.id for hit in hits} == {kept, gone}
    with db.begin() as conn:
        blocks.drop_from(conn, 2, 50)
    with db.begin() as conn:
        retrieval.save(conn, 1, message.step_id, step, hits)
        assert list(conn.execute(Statement("select block_id from retrieval_hits")).scalars()) == [kept]
        assert [text for _, text in blocks.retrieved_texts(conn, hits)] == ["zeppelin kept"]


def test_nothing_of_a_job_that_was_deleted_as_documented_is_left(db: Database) -> None:
    """Neither of a fork of its traces, nor of a job that they called."""
    write(db, 0, 40)
    secret, public = Order("z.py", "x = 'zeppelin'"), Order("a.py", "x = 1")
    with db.begin() as conn:
        for order in (secret, secret, public):
            jobs.enqueue(conn, [order], name="z", agent="weave", model=None, seed=1, settings={}, version="0")
        documents.save(conn, 3, {"zeppelin.md": "a zeppelin"})
        conn.execute(Statement("update traces set fork_of = 5, fork_at = 0 where job_id = 4"))
        conn.execute(Statement("update jobs set called_by = 4 where id = 5"))
        conn.execute(
            Statement(
                "update traces set status = 'failed', failure = 'zeppelin', failure_kind = 'bug'"
                " where job_id between 3 and 5"
            )
        )
    for trace in (5, 6, 7):
        add_block(db, "zeppelin", trace=trace, ran=False)
    with db.begin() as conn:
        conn.execute("update blocks set exception = 'zeppelin' where body = 'zeppelin'")
    index_all(db)
    with db.connect() as conn:
        list(views.refresh(conn))
    assert found(db, "zeppelin", Scope())
    section = Path(ROOT, "docs", "operating.md").read_text().split("## Delete a job\n")[1].split("\n## ")[0]
    [statements] = re.findall(r"(?m)^    with recursive gone .*\n(?:    .*\n)+", section)
    with db.begin() as conn:
        conn.execute(statements.encode())
    with db.begin() as conn:
        indexing.rebuild(conn)
        conn.execute(Statement("update corpus_segments set retired_at = '2020-01-01' where retired_at is not null"))
    index_all(db)
    with db.connect() as conn:
        list(views.refresh(conn))
        names = "select relname from pg_class where relkind in ('r', 'm') and relnamespace = 'public'::regnamespace"
        words = "select count(*) from {} x where position('zeppelin' in x::text) > 0"
        left = {name for name in conn.execute(names).scalars() if conn.execute(words.format(name)).scalar_one()}
    assert left == set()
    assert scalar(db, "select array_agg(id order by id) from traces") == [1, 2, 3, 4]
    assert scalar(db, "select count(*) from bootstraps") == 1


# --------------------------------------------------------------------------------- search by people


def test_people_find_blocks_with_their_place(db: Database) -> None:
    write(db, 0, 30)
    wanted = add_block(db, "zeppelin over the bridge", trace=3, index=77)
    with db.connect() as conn:
        [hit] = search_texts(conn, "zeppelin", Scope())
        assert (hit.block, hit.trace, hit.index, hit.job, hit.type) == (wanted, 3, 77, 2, "action")
        assert search_texts(conn, "zeppelin", Scope(), type="error") == []
        assert search_texts(conn, "zeppelin", Scope(job_id=1)) == []
        for scope, complaint in ((Scope(trace_id=99), "no trace 99"), (Scope(job_id=99), "no job 99")):
            with pytest.raises(UsageError, match=complaint):
                search_texts(conn, "zeppelin", scope)
        for query, type, complaint in (
            ("-x", None, "can't be parsed"),
            ("x", "poem", "poem"),
            ("x", "outcome", "not indexed"),
        ):
            with pytest.raises(UsageError, match=complaint):
                search_texts(conn, query, Scope(), type=type)


def test_the_commands(db: Database, database: str, tmp_path: Path) -> None:
    write(db, 0, 30)
    add_block(db, "zeppelin one\ntwo\nthree\n\x1b[31mfour", trace=3, index=77)
    run = CliRunner(env={"DATABASE_URL": database})
    done = run.invoke(app, ["search", "zeppelin"])
    assert done.exit_code == 0, done.exception
    assert "3:77" in done.output
    assert "three" in done.output
    assert "four" not in done.output
    assert "(1 found" in done.output
    done = run.invoke(app, ["search", "zeppelin", "--json", "--before", "2026-02-01"])
    assert done.output.strip() == "[]"
    assert '"blocks": ' in run.invoke(app, ["reindex", "--json"]).output
    for arguments, complaint in (
        (["--trace", "1", "--job", "1"], "give one of"),
        (["--before", "yesterday"], "not a time"),
    ):
        refused = run.invoke(app, ["search", "zeppelin", *arguments])
        assert isinstance(refused.exception, UsageError)
        assert complaint in str(refused.exception)
