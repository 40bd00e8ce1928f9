"""The BM25 queries that the model writes."""

from collections import namedtuple
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weavegen.kernel.steps import Retrieve
from weavegen.search.trace_index import rank
from weavegen.trace.blocks import BlockType
from weavegen.trace.query import Query, parse, restricted, words

Row = namedtuple("Row", "id body example type", defaults=["action"])
STEP = Retrieve(query="", before=9, top_k_hits=25, least_score=0.5, limit=3)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("lantern bridge", Query(plain=("lantern", "bridge"))),
        ("+Lantern, -import; bridge", Query(plain=("bridge",), wanted=("lantern",), unwanted=("import",))),
        ("type:'orientation'  +tick_action", Query(wanted=("tick", "action"), type=BlockType.ORIENTATION)),
        ('type:action "the bridge" -"no way"', Query(("the", "bridge"), (), ("no", "way"), BlockType.ACTION)),
        ("lantern - bridge, oil -- lamp + wick", Query(plain=("lantern", "bridge", "oil", "lamp", "wick"))),
        ("a +-b 'c' +'d' -\"e f\"", Query(plain=("a", "c"), wanted=("d",), unwanted=("b", "e", "f"))),
        ("cafe\u0301 +na\u00efve", Query(plain=("cafe",), wanted=("na\u00efve",))),
        ("+\u0939\u093f\u0928 \u0e17\u0e35\u0e48", Query(plain=("\u0e17",), wanted=("\u0939", "\u0928"))),
        ("\u201cthe bridge\u201d \u2014 \u6a4b\uff0c\u706f", Query(plain=("the", "bridge", "\u6a4b", "\u706f"))),
        ("get_state _private can't x/y", Query(plain=("get", "state", "private", "can", "t", "x", "y"))),
    ],
)
def test_queries(text: str, query: Query) -> None:
    assert parse(text) == query


@pytest.mark.parametrize(
    "text", ["", "   ", "(lantern", "-import", "type:'action'", "type:poem +rhyme", "+", "- +", '"', "a = b"]
)
def test_texts_that_are_not_queries(text: str) -> None:
    assert parse(text) is None


@given(st.text())
def test_any_text_either_parses_or_is_refused(text: str) -> None:
    query = parse(text)
    assert query is None or query.words


def test_a_trace_with_few_blocks_searches_only_its_own_type() -> None:
    text = restricted("+tick type:'debug' word", BlockType.ACTION)
    assert text == "type:'action' +tick word"
    parsed = parse(text)
    assert parsed is not None
    assert parsed.type is BlockType.ACTION


TERMS = ("board", "-x", "+'a b'", "type:'action'", "type: debug", '"startblock type: action"', "-'type:x y'")


@given(st.lists(st.sampled_from([*TERMS, " ", ",", ";", "- ", "+ "]), max_size=12).map("".join))
@example('"startblock type: action" board')
@example("type:'action'+board")
@example("type:'action',board winning")
def test_a_restricted_query_differs_only_in_its_type(text: str) -> None:
    query = parse(text)
    if query is not None:
        assert parse(restricted(text, BlockType.ERROR)) == replace(query, type=BlockType.ERROR)


def test_minus_excludes_and_one_plus_word_is_required() -> None:
    query = parse("+lantern +bridge -dragon word")
    assert query is not None
    rows = [Row(number, f"filler {number} text", False) for number in range(20)]
    rows += [Row(30, "lantern", False), Row(31, "word", False), Row(32, "lantern dragon", False)]
    assert [hit.id for hit in rank(rows, query, STEP)] == [30]


def test_hits_are_ranked_cut_and_limited() -> None:
    rows = [Row(number, f"filler {number} text", False) for number in range(20)]
    rows += [Row(30, "lantern", False), Row(31, "lantern lantern", False), Row(32, "lantern", True)]
    query = parse("lantern")
    assert query is not None
    hits = rank(rows, query, STEP)
    assert [hit.id for hit in hits] == [31, 30, 32]
    assert [hit.example for hit in hits] == [False, False, True]
    assert len(rank(rows, query, Retrieve(query="", before=9, top_k_hits=1, least_score=0.5, limit=3))) == 1
    assert rank(rows, query, Retrieve(query="", before=9, top_k_hits=25, least_score=99, limit=3)) == []
    assert rank([], query, STEP) == []
    typed = parse("type:'debug' lantern")
    assert typed is not None
    assert [hit.id for hit in rank([*rows, Row(40, "lantern", False, "debug")], typed, STEP)] == [40]


def test_a_word_that_most_texts_have_finds_them() -> None:
    query = parse("lantern")
    assert query is not None
    step = Retrieve(query="", before=9, top_k_hits=25, least_score=0.0, limit=3)
    assert [hit.id for hit in rank([Row(30, "a lantern", False)], query, step)] == [30]
    assert [hit.id for hit in rank([Row(30, "a lantern", False), Row(31, "a bridge", False)], query, step)] == [30]


def test_words_are_split_into_the_parts_of_names() -> None:
    assert words("get_state()['Board'] == 3") == ["get", "state", "board", "3"]
