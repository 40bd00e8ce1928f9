"""Retrieval against a real PostgreSQL: what may be found, and what is kept of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from weavegen import retrieval
from weavegen.enqueueing import BOOTSTRAPS
from weavegen.errors import UsageError
from weavegen.steps import Execute, Hit, Retrieve
from weavegen.store import blocks, examples, jobs, steps
from weavegen.store.jobs import Order
from weavegen.store.session import make_engine

TEXTS = {
    "orientation": "The dragon guards the northern bridge; a lantern would scare it away.",
    "action": "def action_light_lantern(self):\n    light('lantern')",
    "observation": "lantern lantern lantern",
    "debug": "The file was missing, so open() raised.",
    "evaluation": "def eval_bridge_is_free(self):\n    return bridge_is_free()",
}


@pytest.fixture
def conn(database: str) -> Iterator[sa.Connection]:
    """A trace that has left some blocks behind, and another trace."""
    engine = make_engine(database)
    with engine.begin() as conn:
        orders = [Order("a.py", "x = 1")] * 2
        jobs.enqueue(conn, orders, name="t", agent="weave", model=None, seed=1, settings={}, version="0")
        insert = sa.text(
            "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
            " compiles, tags) values (:trace, :index, 1, 'main', :type, :body, :body, 0, 0, true, '{}')"
        )
        rows = [(1, type, body) for type, body in TEXTS.items()]
        rows += [
            (1, "action", f"def action_{word}(self):\n    walk({word!r})") for word in ("north", "south", "east")
        ]
        rows += [(2, "action", TEXTS["action"])]
        for index, (trace, type, body) in enumerate(rows, 2):
            conn.execute(insert, {"trace": trace, "index": index, "type": type, "body": body})
        yield conn
    engine.dispose()


def search(conn: sa.Connection, query: str, before: int = 99) -> list[Hit]:
    step = Retrieve(query=query, before=before, considered=25, least_score=1.0, limit=3)
    return retrieval.search(conn, 1, step)


def types(conn: sa.Connection, hits: list[Hit]) -> list[str]:
    return [type for type, _ in blocks.recalled(conn, hits)]


def test_blocks_of_the_trace_that_have_left_the_window_are_found(conn: sa.Connection) -> None:
    assert types(conn, search(conn, "where is my lantern? +lantern".replace("?", "")))[0] == "action"
    assert types(conn, search(conn, "a dragon on the bridge"))[0] == "orientation"
    assert types(conn, search(conn, "type:'evaluation' bridge lantern")) == ["evaluation"]
    assert types(conn, search(conn, "lantern -dragon")) == ["action"]  # observations are not recalled
    assert search(conn, "lantern", before=2) == []
    assert search(conn, "zeppelin") == []


def test_good_blocks_of_the_jobs_other_traces_are_found_if_the_job_wants_that(conn: sa.Connection) -> None:
    def found(memory: float | None) -> list[int]:
        step = Retrieve(query="lantern light", before=99, considered=25, least_score=1.0, limit=3, memory=memory)
        ids = [hit.id for hit in retrieval.search(conn, 1, step)]
        return list(
            conn.execute(sa.text("select trace_id from blocks where id = any(:ids)"), {"ids": ids}).scalars()
        )

    conn.execute(sa.text("update blocks set score = 2.5 where trace_id = 2"))
    assert set(found(None)) == {1}
    assert sorted(set(found(2.5))) == [1, 2]
    assert set(found(2.6)) == {1}
    conn.execute(sa.text("update blocks set ran = false where trace_id = 2"))
    assert set(found(2.5)) == {1}
    conn.execute(
        sa.text("insert into jobs (name, agent, seed, settings, version) values ('u', 'weave', 1, '{}', '0')")
    )
    conn.execute(sa.text("update blocks set ran = true where trace_id = 2"))
    conn.execute(sa.text("update traces set job_id = (select max(id) from jobs) where id = 2"))
    assert set(found(2.5)) == {1}


def test_the_projects_examples_are_good_blocks_and_are_found(conn: sa.Connection) -> None:
    found = examples.read(BOOTSTRAPS / "examples")
    assert examples.load(conn, found) == len(found)
    assert examples.load(conn, found) == 0
    [hit, *_] = search(conn, "type:'debug' traceback KeyError header column")
    assert hit.example
    [(type, text)] = blocks.recalled(conn, [hit])
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
            "no good action block",
        ),
    ],
)
def test_bad_example_files_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "examples.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=complaint):
        examples.read(path)


def test_what_was_found_is_kept_with_its_cutoff(conn: sa.Connection) -> None:
    step = Retrieve(query="lantern bridge", before=99, considered=25, least_score=0.1, limit=1)
    conn.execute(
        sa.text(
            "insert into ticks (trace_id, number, subagent, first_block, deadline, clock) "
            "values (1, 1, 'main', 0, 9, 0)"
        )
    )
    [message] = steps.insert_ready(conn, 1, 1, 0, [(0, Execute(op="begin"))], None, 60)
    found = retrieval.search(conn, 1, step)
    assert len(found) > 1
    retrieval.save(conn, 1, message.step_id, step, found)
    rows = conn.execute(
        sa.text(
            "select before, rank, used, score from retrievals r join retrieval_hits h on h.retrieval_id = r.id"
        )
    ).all()
    assert [(row.before, row.rank, row.used) for row in rows] == [
        (99, n, n == 1) for n in range(1, len(found) + 1)
    ]
