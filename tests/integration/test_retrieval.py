"""Retrieval with a real PostgreSQL: what may be found, and what is recorded of it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from rank_bm25 import BM25Okapi

from weavegen.database import Connection, Statement
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.errors import UsageError
from weavegen.kernel.steps import Execute, Hit, Retrieve
from weavegen.search import retrieval, trace_index
from weavegen.search.examples import read
from weavegen.store import blocks, examples, jobs, steps
from weavegen.store.jobs import Order
from weavegen.store.session import pooled
from weavegen.trace.query import parse, words

TEXTS = {
    "orientation": "The dragon guards the northern bridge; a lantern would scare it away.",
    "action": "def action_light_lantern(self):\n    light('lantern')",
    "observation": "lantern lantern lantern",
    "debug": "The file was missing, so open() raised.",
    "evaluation": "def eval_bridge_is_free(self):\n    return bridge_is_free()",
}


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    """A trace whose first blocks have left its window, and another trace."""
    db = pooled(database)
    with db.begin() as conn:
        orders = [Order("a.py", "x = 1")] * 2
        jobs.enqueue(conn, orders, name="t", agent="weave", model=None, seed=1, settings={}, version="0")
        insert = Statement(
            "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
            " compiles, tags) values (:trace, :index, 1, 'main', :type, :body, :body, 0, 0, true, '{}')"
        )
        rows = [(1, type, body) for type, body in TEXTS.items()]
        rows += [(1, "action", f"def action_{word}(self):\n    walk({word!r})") for word in ("north", "south", "east")]
        rows += [(2, "action", TEXTS["action"])]
        for index, (trace, type, body) in enumerate(rows, 2):
            conn.execute(insert, {"trace": trace, "index": index, "type": type, "body": body})
        yield conn
    db.close()


def search(conn: Connection, query: str, before: int = 99) -> list[Hit]:
    step = Retrieve(query=query, before=before, top_k_hits=25, least_score=1.0, limit=3)
    return retrieval.search(conn, 1, step)


def types(conn: Connection, hits: list[Hit]) -> list[str]:
    return [type for type, _ in blocks.retrieved_texts(conn, hits)]


def test_blocks_of_the_trace_that_have_left_the_window_are_found(conn: Connection) -> None:
    assert types(conn, search(conn, "where is my lantern? +lantern".replace("?", "")))[0] == "action"
    assert types(conn, search(conn, "a dragon on the bridge"))[0] == "orientation"
    assert types(conn, search(conn, "type:'evaluation' bridge lantern")) == ["evaluation"]
    assert types(conn, search(conn, "lantern -dragon")) == ["action"]  # observations are not retrieved
    assert search(conn, "lantern", before=2) == []
    assert search(conn, "zeppelin") == []


def test_the_projects_examples_are_legal_blocks_and_are_found(conn: Connection) -> None:
    rows = read(BOOTSTRAPS / "examples")
    assert examples.load(conn, rows) == len(rows)
    assert examples.load(conn, rows) == 0
    [hit, *_] = search(conn, "type:'debug' traceback KeyError header column")
    assert hit.example
    [(type, text)] = blocks.retrieved_texts(conn, [hit])
    assert type == "debug"
    assert "KeyError" in text
    assert " Yes. (95." in text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("type = 'poem'\n", "poem"),
        ("type = 'action'\n[[example]]\nbody = 'x'\n", "description"),
        ("type = 'action'\nexample = []\n", "no examples"),
        ("nonsense", "see bootstraps/examples"),
        (
            "type = 'action'\n[[example]]\ndescription='d'\nquestion='q'\nscore=1.0\nbody='x = 1'\n",
            "not a good action block",
        ),
    ],
)
def test_bad_example_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "examples.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        read(path)


def test_hits_are_recorded_with_their_cutoff(conn: Connection) -> None:
    step = Retrieve(query="lantern bridge", before=99, top_k_hits=25, least_score=0.1, limit=1)
    conn.execute(
        Statement(
            "insert into ticks (trace_id, number, subagent, first_block, deadline, clock) "
            "values (1, 1, 'main', 0, 9, 0)"
        )
    )
    [message] = steps.insert_ready(conn, 1, 1, 0, [(0, Execute(op="begin"))], None, 60)
    hits = retrieval.search(conn, 1, step)
    assert len(hits) > 1
    retrieval.save(conn, 1, message.step_id, step, hits)
    rows = conn.execute(
        Statement("select before, rank, used, score from retrievals r join retrieval_hits h on h.retrieval_id = r.id")
    ).all()
    assert [(row.before, row.rank, row.used) for row in rows] == [(99, n, n == 1) for n in range(1, len(hits) + 1)]


# ------------------------------------------------------------------------------------------- the index

VOCABULARY = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(200)]


@pytest.fixture
def long(conn: Connection) -> Connection:
    """Trace 2 with 900 more blocks, of words as uneven in their use as those of a language.

    One block in five has a type that is not retrieved, and some blocks have no words.
    """
    chance = random.Random(1)
    weights = [1 / (n + 1) for n in range(len(VOCABULARY))]
    insert = Statement(
        "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
        " compiles, tags) values (2, :index, 1, 'main', :type, :body, :body, 0, 0, true, '{}')"
    )
    rows = []
    for index in range(100, 1000):
        common = ["always"] if chance.random() < 0.7 else []
        body = " ".join(common + chance.choices(VOCABULARY, weights, k=chance.randrange(0, 40)))
        types = ["action", "orientation", "error", "observation", "evaluation"]
        rows.append({"index": index, "type": types[index % 5], "body": body or "..."})
    conn.execute_each(insert, rows)
    examples.load(conn, read(BOOTSTRAPS / "examples"))
    return conn


def exhaustive(conn: Connection, query: str, before: int) -> dict[tuple[bool, int], float]:
    """The score that rank-bm25 gives every text of the corpus, by (example, id)."""
    rows = conn.execute(
        Statement(
            "select id, body, false as example from blocks where trace_id = 2 and index < :before"
            " and type in ('orientation', 'action', 'evaluation', 'debug', 'error')"
            " union all select id, body, true from examples"
        ),
        {"before": before},
    ).all()
    parsed = parse(query)
    assert parsed is not None
    scores = BM25Okapi([words(row.body) or [""] for row in rows]).get_scores(parsed.words)
    return {(row.example, row.id): score for row, score in zip(rows, scores, strict=True)}


def of_long(conn: Connection, query: str, before: int, top_k_hits: int = 2000) -> dict[tuple[bool, int], float]:
    step = Retrieve(query=query, before=before, top_k_hits=top_k_hits, least_score=0.01, limit=3)
    return {(hit.example, hit.id): hit.score for hit in retrieval.search(conn, 2, step)}


QUERIES = [
    "wordaa wordbb wordhr",
    "always wordaa",
    "always",
    "+wordaz wordaa always wordaa",
    "the self def action wordac return",
    "nosuchword wordgg",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("before", [150, 400, 777, 1000])
def test_indexed_texts_score_as_with_rank_bm25(long: Connection, query: str, before: int) -> None:
    unindexed = of_long(long, query, before)
    for cutoff in range(100, 1000, 60):
        trace_index.seal(long, 2, cutoff)
    assert long.execute(Statement("select count(*) from segments")).scalar_one() == 720 // trace_index.SEGMENT_BLOCKS
    scores, expected = of_long(long, query, before), exhaustive(long, query, before)
    assert scores == pytest.approx(unindexed)
    plain = "+" not in query
    assert scores == pytest.approx({key: s for key, s in expected.items() if s >= 0.01 and (plain or key in scores)})
    assert list(of_long(long, query, before, top_k_hits=25)) == list(scores)[:25]


def test_recording_a_query_indexes_the_blocks_that_it_could_find(long: Connection) -> None:
    long.execute(
        Statement(
            "insert into ticks (trace_id, number, subagent, first_block, deadline, clock) "
            "values (2, 1, 'main', 0, 9, 0)"
        )
    )
    [message] = steps.insert_ready(long, 2, 1, 0, [(0, Execute(op="begin"))], None, 60)
    step = Retrieve(query="wordaa", before=600, top_k_hits=25, least_score=1.0, limit=3)
    retrieval.save(long, 2, message.step_id, step, [])
    past = trace_index.sealed(long, 2, 600)
    assert past.segments == 401 // trace_index.SEGMENT_BLOCKS
    assert past.end <= 600
    seen = "select count(*) from blocks where trace_id = 2 and index < :end and type <> 'observation'"
    assert long.execute(Statement(seen), {"end": past.end}).scalar_one() == len(past.documents)


def test_words_of_any_length_are_indexed(long: Connection) -> None:
    long.execute(Statement("update blocks set body = repeat('x', 9000) where trace_id = 2 and index = 105"))
    trace_index.seal(long, 2, 1000)
    [(_, id)] = of_long(long, "x" * 3000, 1000)
    assert long.execute(Statement("select index from blocks where id = :id"), {"id": id}).scalar_one() == 105


def test_exclusions_and_restrictions_apply_to_indexed_texts(long: Connection) -> None:
    queries = ["wordaa -wordab", "+wordac +wordad wordaa", "type:'error' wordaa", "type:'expectation' note wordaa"]
    before = [of_long(long, query, 1000) for query in queries]
    trace_index.seal(long, 2, 1000)
    for query, scores in zip(queries, before, strict=True):
        assert of_long(long, query, 1000) == pytest.approx(scores)


def test_the_index_forgets_the_blocks_of_a_restarted_tick(long: Connection) -> None:
    trace_index.seal(long, 2, 1000)
    blocks.drop_from(long, 2, 500)
    held = long.execute(Statement('select count(*), max("end") from segments')).one()
    assert 0 < held.count < 720 // trace_index.SEGMENT_BLOCKS
    assert held.max <= 500
    assert long.execute(Statement("select max(segment) + 1 from postings")).scalar_one() == held.count
    query = "always wordaa wordbb"
    assert of_long(long, query, 1000) == pytest.approx(
        {key: score for key, score in exhaustive(long, query, 1000).items() if score >= 0.01}
    )
