"""What people say about candidates: labels for verifiers, pairs of preferences, and answers that calibrate."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.sample_corpus import filled
from weavegen import exports
from weavegen.cli.rescore import read_pairs
from weavegen.config import Config
from weavegen.database import Database, Statement
from weavegen.errors import UsageError
from weavegen.exports.completions import find
from weavegen.exports.format import Options
from weavegen.store import annotations
from weavegen.store.annotations import Place


@pytest.fixture(scope="module")
def corpus(config: Config, template: str) -> Iterator[Database]:
    with filled(config, template) as engine:
        yield engine


@pytest.fixture
def db(corpus: Database) -> Iterator[Database]:
    """The sample corpus; after the test without annotations."""
    yield corpus
    with corpus.begin() as conn:
        conn.execute(Statement("delete from annotations"))


def rows(db: Database, query: str, **values: Any) -> list[dict[str, Any]]:
    with db.connect() as conn:
        return [dict(row) for row in conn.execute(Statement(query), values).mappings()]


def annotate(db: Database, trace: int, author: str = "anna", **what: Any) -> dict[str, Any]:
    place = Place(trace, what.pop("index", None), what.pop("candidate", None))
    with db.begin() as conn:
        return annotations.save(conn, place, author, **what)


PAIR = """
    select trace_id as trace, index, chosen_id, rejected_id from preference_pairs
    where kind = 'candidates' and not outcome_differs and chosen_kept order by trace_id, index limit 1
"""


def test_one_row_for_each_person_and_text(db: Database) -> None:
    [pair] = rows(db, PAIR)
    trace, index, candidate = pair["trace"], pair["index"], pair["chosen_id"]
    by_index = annotate(db, trace, index=index, verdict="good")
    assert by_index == {"trace_id": trace, "block_id": None, "candidate_id": candidate}
    assert annotate(db, trace, candidate=candidate, verdict="bad", labels=["a", "a", " !"], note="n") == by_index
    annotate(db, trace, "ben", candidate=candidate, verdict="good")
    query = "select author, verdict, labels, note, changed_at > created_at as changed from annotations order by id"
    assert [tuple(row.values()) for row in rows(db, query)] == [
        ("anna", "bad", ["a"], "n", True),
        ("ben", "good", [], "", False),
    ]
    annotate(db, trace, candidate=candidate)
    assert [row["author"] for row in rows(db, query)] == ["ben"]
    with pytest.raises(UsageError, match="nothing to annotate"):
        annotate(db, trace, index=9999, verdict="good")


def test_verdicts_and_labels_are_labels_of_verifiers(db: Database) -> None:
    [pair] = rows(db, PAIR)
    trace = pair["trace"]
    before = rows(db, "select count(*) as n from verifier_labels")[0]["n"]
    annotate(db, trace, index=pair["index"], verdict="bad", labels=["lucky", "!concise"])
    annotate(db, trace, candidate=pair["rejected_id"], verdict="good")
    annotate(db, trace, index=0, verdict="good")  # the model did not write it
    annotate(db, trace, verdict="good")
    found = rows(db, "select * from verifier_labels where source in ('annotated', 'labelled') order by label_id")
    assert rows(db, "select count(*) as n from verifier_labels")[0]["n"] == before + len(found)
    [rubric] = rows(
        db,
        "select question, yes / (yes + no) as yes from scores where candidate_id = :id and stage = 'raw' or "
        "candidate_id = :id and not exists (select from scores where candidate_id = :id and stage = 'raw') "
        "order by id limit 1",
        id=pair["chosen_id"],
    )
    labels = [(row["source"], row["question"], row["label"]) for row in found]
    assert labels == [
        ("annotated", rubric["question"], False),
        ("annotated", rubric["question"], True),
        ("labelled", 'Does the label "lucky" apply to this block?', True),
        ("labelled", 'Does the label "concise" apply to this block?', False),
    ]
    assert found[0]["predicted"] == pytest.approx(rubric["yes"])
    assert found[0]["tags"] == ["lucky", "!concise"]
    texts = {row["id"]: row["text"] for row in rows(db, "select id, text from candidates")}
    assert found[1]["body"] in texts[pair["rejected_id"]] or texts[pair["rejected_id"]] in found[1]["body"]
    format = exports.find("verifier")
    keys = [tuple(row[name] for name in format.key) for row in found]
    with db.connect() as conn:
        records = find(conn, "verifier", trace, keys)
    assert [(records[key]["source"], records[key]["label"]) for key in keys] == [(a, c) for a, _, c in labels]


def test_people_go_before_values_in_pairs(db: Database) -> None:
    [pair] = rows(db, PAIR)
    trace, better, worse = pair["trace"], pair["chosen_id"], pair["rejected_id"]
    of_block = f"select * from preference_pairs where trace_id = {trace} and index = {pair['index']}"
    annotate(db, trace, candidate=better, verdict="bad")
    assert better not in [row["chosen_id"] for row in rows(db, of_block)], "a bad text is never the better one"
    annotate(db, trace, candidate=worse, verdict="good")
    found = rows(db, f"{of_block} and kind = 'annotated'")
    assert [(row["chosen_id"], row["rejected_id"], row["margin"]) for row in found] == [(worse, better, None)]
    assert (better, worse) not in [(row["chosen_id"], row["rejected_id"]) for row in rows(db, of_block)]
    weak = exports.find("dpo").weak(Options())
    assert weak is not None
    assert rows(db, f"{of_block} and kind = 'annotated' and {weak[0]}") == []
    key = (trace, pair["index"], worse, better)
    with db.connect() as conn:
        record = find(conn, "dpo", trace, [key])[key]
    assert (record["kind"], record["margin"], record["chosen_value"]) == ("annotated", None, None)
    annotate(db, trace, "ben", candidate=worse, verdict="bad")
    assert rows(db, f"{of_block} and kind = 'annotated'") == [], "people disagree"


def test_a_pair_of_values_that_people_confirm_is_one_of_people(db: Database) -> None:
    [pair] = rows(db, PAIR)
    trace, better, worse = pair["trace"], pair["chosen_id"], pair["rejected_id"]
    annotate(db, trace, candidate=better, verdict="good")
    annotate(db, trace, candidate=worse, verdict="bad")
    of_pair = f"select kind from preference_pairs where chosen_id = {better} and rejected_id = {worse}"
    assert rows(db, of_pair) == [{"kind": "annotated"}]


def test_the_model_s_judge_is_compared_with_people(db: Database) -> None:
    [pair] = rows(db, PAIR)
    trace = pair["trace"]
    with db.connect() as conn:
        assert read_pairs(conn, None, "truth = 'annotation'", bearing=False)[0] == {}
    annotate(db, trace, index=pair["index"], verdict="good")
    annotate(db, trace, "ben", index=pair["index"], verdict="bad")
    annotate(db, trace, candidate=pair["rejected_id"], verdict="bad")
    annotate(db, trace, candidate=pair["rejected_id"], author="cleo", labels=["no verdict"])
    with db.connect() as conn:
        pairs, undefined = read_pairs(conn, None, "truth = 'annotation'", bearing=False)
        anna, _ = read_pairs(conn, None, "author = 'anna'", bearing=False)
    assert (len(pairs), undefined) == (1, 0)
    [((question, truth), found)] = pairs.items()
    assert truth == "annotation"
    assert sorted(one.answer for one in found) == [False, False, True]
    scores = rows(db, "select score from annotated_candidates where verdict is not null and question = :q", q=question)
    assert sorted(one.score for one in found) == pytest.approx(sorted(row["score"] for row in scores))
    assert sorted(one.answer for one in anna[question, truth]) == [False, True]
