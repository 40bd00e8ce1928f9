"""What models write: traces, queries, blocks and trees of them, mutated."""

import math
import random
import re
from pathlib import Path

import lark
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz import fuzz
from tests.fuzz.inputs import NESTED, OVER_AND_OVER
from tests.support.rendering import render_trace
from weavegen.agents.tree_search import Tree
from weavegen.linting.lint import lint, syntax_error
from weavegen.linting.partial import viable_prefix
from weavegen.linting.truncate import MAX_CHARS
from weavegen.trace.blocks import Block, BlockType, Label
from weavegen.trace.query import parse, restricted
from weavegen.trace.render import parse_trace

pytestmark = pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")

PARTS = [part for parts in OVER_AND_OVER.values() for part in parts]
nests = st.builds(
    lambda nest, depth: nest[0] * depth + nest[1] + nest[2] * depth, st.sampled_from(NESTED), st.integers(1, 120)
)
runs = st.builds(lambda part, times: part * times, st.sampled_from(PARTS), st.integers(1, 60))
nonsense = st.lists(st.sampled_from(PARTS) | runs | nests | st.text(max_size=9), max_size=9).map("".join)

TRACE = render_trace(
    [
        Block(type=BlockType.GENESIS, body="x = 1", index=0, timestamp=1.5, time_remaining=60.0),
        Block(
            type=BlockType.ORIENTATION,
            body='"""I think."""',
            index=1,
            timestamp=1763740800.25,
            time_remaining=-1e-7,
            block_size=768,
            bm25_query="+a -b",
            tick_start=0,
            working_directory="/app",
            label=Label("Is it so?", True, 0.94371),
            ran=True,
            tags=("a", "b"),
        ),
        Block(type=BlockType.OUTCOME, body="a\n\nb", index=2, timestamp=2e22, time_remaining=0.0, title="T"),
        Block(type=BlockType.ACTION, body="def f(:", index=3, timestamp=2.0, time_remaining=0.0, compiles=False),
    ]
)
SPLICES = ["9" * 5_000, "1e999", "-", ".", "nan", "inf", "poem", "#", "\n", "\r", " ", "\u0661", "(%)", "1.2.3", "\x00"]


@fuzz(200)
@given(st.lists(st.tuples(st.integers(0, len(TRACE)), st.integers(0, 12), st.sampled_from(SPLICES) | st.text())))
@example([(TRACE.index("#index 1") + 7, 1, "9" * 5_000)])
@example([(TRACE.index("#timestamp") + 11, 3, "soon")])
@example([(TRACE.index("94.371"), 6, "9.4.3")])
@example([(TRACE.index("type: genesis") + 6, 7, "poem")])
def test_a_text_is_a_trace_or_none(changes: list[tuple[int, int, str]]) -> None:
    text = TRACE
    for at, length, new in changes:
        text = text[:at] + new + text[at + length :]
    try:
        blocks = parse_trace(text)
    except lark.UnexpectedInput:
        return
    again = parse_trace(render_trace(blocks))
    assert [(block.type, block.index) for block in again] == [(block.type, block.index) for block in blocks]


def test_the_grammar_knows_every_block_type() -> None:
    grammar = Path("weavegen/trace/grammars/trace.lark").read_text()
    types = grammar.split("\nTYPE: ")[1].split("\nINDEX")[0]
    assert re.findall('"([a-z-]+)"', types) == list(BlockType)


@fuzz(300)
@given(st.sampled_from(BlockType), nonsense)
def test_every_text_can_be_linted(type: BlockType, text: str) -> None:
    verdict = lint(type, text)
    assert 0 <= verdict.penalties.total() < math.inf
    assert verdict.error is None or ("\n" not in verdict.error and len(verdict.error) < 1_000)
    if verdict.compiles and "\n".join(text.splitlines()).strip():
        assert lint(type, verdict.rewritten).rewritten == verdict.rewritten
    viable_prefix(type, text)


@fuzz(200)
@given(nonsense)
def test_constants_that_are_not_computed_change_no_verdict(text: str) -> None:
    """The star in front makes the linter put other operators into the tree that it compiles."""
    with_star = "a * 1\n" + text
    expected = syntax_error("a - 1\n" + text)
    assert (syntax_error(with_star) is None) == (expected is None)


@pytest.mark.parametrize(
    "text",
    ["case -1 * 0:", "case -1:", "case 1 + 2j:", "case -1 - 2j:", "case {-1: x}:", "case {1: x, 1: y}:", "case ~1:"],
)
def test_patterns_are_as_legal_as_they_were(text: str) -> None:
    whole = f"match x:\n {text}\n  pass\n"
    try:
        compile(whole, "<text>", "exec")
        legal = True
    except SyntaxError:
        legal = False
    assert (syntax_error(whole + "y = 2 * 3\n") is None) == legal


def test_a_block_has_an_end() -> None:
    assert syntax_error("x" * MAX_CHARS) is None
    assert "at most" in (syntax_error("x" * (MAX_CHARS + 1)) or "")
    assert not viable_prefix(BlockType.ACTION, "#" * (MAX_CHARS + 1))


@fuzz(200)
@given(nonsense, st.sampled_from(BlockType))
def test_every_query_can_be_restricted_to_one_type(text: str, type: BlockType) -> None:
    parsed = parse(restricted(text, type))
    assert parsed is None or (parsed.type is type and parsed.words)


numbers = st.sampled_from([0.0, 1.0, -745.0, 1e308, -1e308, 5e-324, math.inf, -math.inf]) | st.floats(-9, 9)


@fuzz(100)
@given(st.lists(st.lists(st.tuples(numbers, st.booleans()), max_size=4), max_size=25), st.integers(0, 9), st.data())
def test_a_tree_bears_every_score(rounds: list[list[tuple[float, bool]]], seed: int, data: st.DataObject) -> None:
    tree = Tree(random.Random(seed))
    for grown in rounds:
        leaf = tree.best(data.draw(st.integers(1, 4)))
        if leaf is None:
            break
        tree.grow(leaf, [logit for logit, _ in grown], [done for _, done in grown])
        if data.draw(st.booleans()):
            tree.set_logit(leaf.children[0] if leaf.children else leaf, data.draw(numbers))
        if data.draw(st.booleans()):
            tree.prune(data.draw(st.integers(1, 3)))
        assert not tree.take().children


def test_a_tree_may_be_deeper_than_the_stack() -> None:
    tree = Tree(random.Random(1))
    leaf = tree.root
    for _ in range(1_100):  # the stack has 1,000 frames
        [leaf] = tree.grow(leaf, [0.5], [False])
    assert list(tree.leaves()) == [leaf]
    assert tree.take() is leaf
