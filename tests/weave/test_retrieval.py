"""The BM25 queries that the model writes, what they find, and what they must not find."""

from collections import namedtuple
from collections.abc import Iterator

import pytest

from tests.support.policies import compose
from tests.support.script import GOOD, T, drafts, queries, samples, steps, tick
from weavegen.database import Connection, Statement
from weavegen.engine.enqueueing import BOOTSTRAPS
from weavegen.kernel import prompts
from weavegen.kernel.context import LINE_STOP, window
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Execute, Hit, Prompt, Retrieve, Sample
from weavegen.search import retrieval
from weavegen.search.examples import read
from weavegen.search.trace_index import rank
from weavegen.store import examples, jobs
from weavegen.store import steps as store
from weavegen.store.jobs import Order
from weavegen.store.session import pooled
from weavegen.trace.query import Query, parse
from weavegen.trace.render import render_block

Row = namedtuple("Row", "id body example type", defaults=["action"])
FILLER = [Row(number, f"something else number {number}", False) for number in range(40)]


def step(**values: object) -> Retrieve:
    return Retrieve(**{"query": "", "before": 99, "top_k_hits": 25, "least_score": 2.0, "limit": 3, **values})  # type: ignore[arg-type]


def retrieved(query: str, rows: list[Row], **values: object) -> list[int]:
    parsed = parse(query)
    assert parsed is not None
    return [hit.id for hit in rank(rows, parsed, step(**values))]


# ----------------------------------------------------------------------------------------- the query


def test_the_model_writes_the_query_before_the_block() -> None:
    """The model is asked for the header line `#bm25_query`, and the recorded block has that line.

    weavegen asks in the second round, when no candidate of the first was good enough; for an orientation always.
    """
    trace = tick()
    [asked] = queries(trace, T.ORIENTATION)
    [written] = samples(trace, T.ORIENTATION)
    assert [step for step in steps(trace, Sample) if step.prompt.type is T.ORIENTATION] == [asked, written]
    assert asked.prompt.header.endswith("#bm25_query ")
    assert written.prompt.header.splitlines()[-3].startswith("#bm25_query ")
    assert LINE_STOP[0] == "\n", "a query is one line"


def test_the_query_prompt_asks_for_a_dozen_words_with_plus_and_minus() -> None:
    """The prompt asks for a dozen or more words: `+word` for wanted ones, `-word` for excluded ones."""
    prompt = Prompt(type=T.ACTION, window=(2, 2), header="#bm25_query ", query=True)
    text = compose(prompt, ["genesis\n"], [], [])
    assert "a dozen words or more" in text
    assert "+word" in text
    assert "-word" in text
    assert text.endswith(" [/INST]\n#bm25_query ")
    assert prompts.instruction(T.ACTION) not in text


def test_the_first_of_eight_samples_that_parses_is_the_query() -> None:
    """One is sampled, and the other seven because it does not parse. Later samples are not checked."""
    trace = tick(s={"same_type_until": 0}, queries=["(((", "", "-only -minus", "+key door", "window"])
    assert [asked.n for asked in queries(trace, T.ORIENTATION)] == [1, 7]
    [retrieved] = steps(trace, Retrieve)
    assert retrieved.query == "+key door"


def test_nothing_is_retrieved_if_no_query_parses() -> None:
    """The block is then written without retrieval and has no query in its header."""
    trace = tick(queries=["((("])
    assert steps(trace, Retrieve) == []
    [orientation] = drafts(trace, T.ORIENTATION)
    assert orientation.bm25_query is None
    assert len(samples(trace, T.ORIENTATION)) == 1


@pytest.mark.parametrize(("before", "query"), [(48, "type:'orientation' key door"), (49, "key door")])
def test_a_trace_under_fifty_blocks_retrieves_only_blocks_of_the_same_type(before: int, query: str) -> None:
    """`type:'orientation'` is added to the query of block 49, but not to that of block 50."""
    trace = tick(blocks=before)
    [orientation] = [block for block in trace.blocks if block.type is T.ORIENTATION]
    assert orientation.index == before + 1
    assert orientation.bm25_query == query
    assert [retrieve.query for retrieve in steps(trace, Retrieve)] == [query]


def test_the_query_is_in_the_header_of_its_block() -> None:
    """The header has the query in the trace and in all later sampling and scoring prompts of the block."""
    trace = tick(s={"same_type_until": 0})
    [orientation] = [block for block in trace.blocks if block.type is T.ORIENTATION]
    assert "\n#bm25_query key door\n" in render_block(orientation)
    assert render_block(orientation).startswith(samples(trace, T.ORIENTATION)[0].prompt.header)


# ------------------------------------------------------------------------------------------ the hits


def test_limits_of_a_retrieval() -> None:
    """A tick asks for at most 25 hits, with a score of at least 2, and shows the best 3 in the prompt."""
    [asked] = steps(tick(), Retrieve)
    assert (asked.top_k_hits, asked.least_score, asked.limit) == (25, 2.0, 3)


def test_hits_are_ranked_by_bm25_score_and_limited() -> None:
    """The best hit comes first. Hits below the minimum score and beyond the maximum number are left out."""
    rows = [*FILLER, Row(50, "key", False), Row(51, "key door", False), Row(52, "key door lock", False)]
    assert retrieved("key door lock", rows) == [52, 51, 50]
    assert retrieved("key door lock", rows, least_score=4.0) == [52, 51]
    assert retrieved("number", rows) == [], "a word of nearly every text has almost no weight"
    many = [*FILLER, *(Row(number, "key", False) for number in range(100, 113))]
    assert len(retrieved("key key key", many)) == 13
    assert len(retrieved("key key key", many, top_k_hits=5)) == 5


def test_at_most_three_hits_are_in_the_prompt_commented_out() -> None:
    """They are the 3 hits with the best scores, in this order."""
    hits = [Hit(id=number, score=9.0 - number) for number in range(5)]
    trace = tick(hits=hits)
    [written] = samples(trace, T.ORIENTATION)
    assert written.prompt.recalled == tuple(hits[:3])
    blocks = [(T.ACTION, f"#startblock type: action\nx = {n}\n#endblock\n\n") for n in range(3)]
    text = compose(written.prompt, [], [], blocks)
    assert text.index("# x = 0") < text.index("# x = 1") < text.index("# x = 2")


def test_minus_excludes_and_plus_requires_one_wanted_word() -> None:
    """`-word` excludes a text. weavegen requires one of the `+words`, and counts these words twice.

    Requiring all of a dozen words would find nothing.
    """
    rows = [*FILLER, Row(50, "key door", False), Row(51, "door lock", False), Row(52, "key lamp", False)]
    assert parse("+key -lamp door") == Query(plain=("door",), wanted=("key",), unwanted=("lamp",))
    assert retrieved("door key lock", rows)[0] == 51
    assert retrieved("door +key +lamp", rows)[0] == 52
    assert retrieved("door key -lock", rows)[0] == 50
    assert 51 not in retrieved("door +key", rows)
    assert set(retrieved("+key +door +lock", rows)) == {50, 51, 52}
    once, twice = parse("key"), parse("+key")
    assert once is not None
    assert twice is not None
    [better, *_], [hit, *_] = rank(rows, twice, step()), rank(rows, once, step(least_score=0.0))
    assert better.id == hit.id
    assert better.score == pytest.approx(2 * hit.score)


def test_a_query_can_be_restricted_to_a_type() -> None:
    """`type:'orientation'` finds only orientations."""
    rows = [*FILLER, Row(50, "key", False, "orientation"), Row(51, "key", False)]
    assert retrieved("type:'orientation' key", rows) == [50]


# -------------------------------------------------------------------------------------- cutoff, corpus


@pytest.mark.parametrize("blocks", [10, 61, 62, 150])
def test_blocks_in_the_window_are_never_retrieved(blocks: int) -> None:
    """Only blocks before the window are retrieved."""
    trace = tick(blocks=blocks)
    [asked] = steps(trace, Retrieve)
    first, end = samples(trace, T.ORIENTATION)[0].prompt.window
    assert asked.before == first == window(end, Settings())[0]
    assert end == blocks + 1


@pytest.fixture
def conn(database: str) -> Iterator[Connection]:
    """A trace in which only blocks 3 and 70 mention a lantern."""
    db = pooled(database)
    with db.begin() as conn:
        order = [Order("a.py", "x = 1")]
        jobs.enqueue(conn, order, name="t", agent="weave", model=None, seed=1, settings={}, version="0")
        insert = Statement(
            "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
            " compiles, tags) values (1, :index, 1, 'main', 'action', :body, :body, 0, 0, true, '{}')"
        )
        for index in range(80):
            body = "lantern bridge" if index in (3, 70) else f"something else number {index}"
            conn.execute(insert, {"index": index, "body": body})
        yield conn
    db.close()


def indices(conn: Connection, hits: list[Hit]) -> list[int]:
    query = Statement("select index from blocks where id = any(:ids)")
    return list(conn.execute(query, {"ids": [hit.id for hit in hits]}).scalars())


def test_the_cutoff_holds_in_the_database(conn: Connection) -> None:
    """Block 70 is found once it has left the window; before that only block 3 is found."""
    assert indices(conn, retrieval.search(conn, 1, step(query="lantern", before=70))) == [3]
    assert sorted(indices(conn, retrieval.search(conn, 1, step(query="lantern", before=71)))) == [3, 70]
    assert retrieval.search(conn, 1, step(query="lantern", before=3)) == []


def test_the_corpus_has_good_examples(conn: Connection) -> None:
    """Each has type, question, score, description and text, is a legal block, and is found like any other."""
    seeds = read(BOOTSTRAPS / "examples")
    assert {type for type, _ in seeds} == set(GOOD)
    assert all(example.score > 0 and example.question.endswith("?") for _, example in seeds)
    assert examples.load(conn, seeds) == len(seeds)
    held = conn.execute(Statement("select type, question, score, description, body from examples")).all()
    expected = {(type, example.question, example.score, example.description, example.body) for type, example in seeds}
    assert {tuple(row) for row in held} == expected
    query = "type:'debug' traceback KeyError header column"
    [hit, *_] = retrieval.search(conn, 1, step(query=query, before=0))
    assert hit.example
    [(type, text)] = examples.texts(conn, [hit.id]).values()
    assert type is T.DEBUG
    lines = text.rstrip().splitlines()
    assert lines[0] == "#startblock type: debug"
    assert lines[-2].endswith("%)")
    assert lines[-1] == "#endblock"


def test_queries_and_hits_are_recorded(conn: Connection) -> None:
    """The database holds the query, the cutoff, every hit with rank and score, and which hits the model read."""
    conn.execute(
        Statement(
            "insert into ticks (trace_id, number, subagent, first_block, deadline, clock)"
            " values (1, 1, 'main', 0, 9, 0)"
        )
    )
    [message] = store.insert_ready(conn, 1, 1, 0, [(0, Execute(op="begin"))], None, 60)
    asked = step(query="+lantern bridge", limit=1)
    hits = retrieval.search(conn, 1, asked)
    retrieval.save(conn, 1, message.step_id, asked, hits)
    rows = conn.execute(
        Statement(
            "select query, before, rank, used, score from retrievals r"
            " join retrieval_hits on retrieval_id = r.id order by rank"
        )
    ).all()
    assert [(row.query, row.before, row.rank, row.used) for row in rows] == [
        ("+lantern bridge", 99, 1, True),
        ("+lantern bridge", 99, 2, False),
    ]
    assert all(row.score >= 2.0 for row in rows)
