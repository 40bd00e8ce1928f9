"""BM25 over the blocks that have left the window."""

import sqlalchemy as sa

from weavegen.retrieval import search, tokens
from weavegen.steps import Retrieve
from weavegen.store import jobs
from weavegen.store.jobs import Order
from weavegen.store.session import make_engine

TEXTS = {
    "orientation": "The dragon guards the northern bridge; a lantern would scare it away.",
    "action": "def action_light_lantern(self):\n    light('lantern')",
    "observation": "lantern lantern lantern",
    "debug": "The file was missing, so open() raised.",
    "evaluation": "def eval_bridge_is_free(self):\n    return bridge_is_free()",
}


def test_tokens_are_words_and_the_parts_of_names() -> None:
    assert tokens("get_state()['Board'] == 3") == ["get", "state", "board", "3"]


def test_the_best_blocks_outside_the_window_are_found(database: str) -> None:
    engine = make_engine(database)
    with engine.begin() as conn:
        order = Order("a.py", "x = 1")
        jobs.enqueue(
            conn, [order, order], name="t", agent="weave", model=None, seed=1, settings={}, version="0"
        )  # fmt: skip
        insert = sa.text(
            "insert into blocks (trace_id, index, tick, subagent, type, body, rendered, timestamp, time_remaining,"
            " compiles, tags) values (:trace, :index, 1, 'main', :type, :body, '', 0, 0, true, '{}')"
        )
        rows = [(1, type, body) for type, body in TEXTS.items()]
        rows += [
            (1, "action", f"def action_{word}(self):\n    walk({word!r})") for word in ("north", "south", "east")
        ]
        rows += [(2, "action", TEXTS["action"])]
        for index, (trace, type, body) in enumerate(rows, 2):
            conn.execute(insert, {"trace": trace, "index": index, "type": type, "body": body})

        def found(query: str, before: int = 99) -> list[str]:
            hits = search(conn, 1, Retrieve(query=query, before=before, limit=3))
            assert all(hit.score >= 2 for hit in hits)
            assert hits == sorted(hits, key=lambda hit: -hit.score)
            names = sa.text("select type from blocks where id = :id and trace_id = 1")
            return [conn.execute(names, {"id": hit.id}).scalar_one() for hit in hits]

        assert found("where is my lantern? light the lantern")[0] == "action"  # observations are not recalled
        assert found("a dragon on the bridge")[0] == "orientation"
        assert found("lantern", before=2) == []
        assert found("zeppelin") == []
        assert found("...") == []
    engine.dispose()
