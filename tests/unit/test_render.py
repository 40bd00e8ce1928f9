"""The trace format: rendered text compiles as Python and parses back into the same blocks."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rendering import render_trace
from weavegen.linting.lint import syntax_error
from weavegen.trace.blocks import COMMENTED, Block, BlockType, Label
from weavegen.trace.render import normalise_body, one_line, parse_trace, render_block

nasty = st.text() | st.sampled_from(
    [
        "#endblock",
        "x = 1\n#startblock type: action\n#index 4",
        "#q: Is it so? Yes. (99%)",
        "'''",
        '"""',
        "\\",
        "a\rb",
        "\x00",
        "\ud800",
        "#tags: x",
        "# Starting new tick with block #3",
        "\f",
        "\x1a",
        "from __future__ import annotations",
        "x = 1\nglobal x",
        "def f(self):\n    return 1\nself.add_action('t', f)",
        "\n\n",
        " # ",
        "return 3",
    ]
)
texts = st.lists(nasty, max_size=4).map("\n".join)


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    type = draw(st.sampled_from(BlockType))
    body = normalise_body(type, draw(texts))
    orientation = type is BlockType.ORIENTATION
    label = draw(
        st.none()
        | st.builds(
            Label,
            question=nasty.map(one_line).map(lambda q: q + "?"),
            answer=st.booleans(),
            probability=st.floats(0, 1).map(lambda p: round(p, 5)),
        )
    )
    return Block(
        type=type,
        body="" if type is BlockType.OPTION else body,
        subagent=draw(st.sampled_from(["main", "child 2"])),
        index=draw(st.integers(0, 10**6)),
        timestamp=draw(st.floats(0, 1e11)),
        time_remaining=draw(st.floats(-1e6, 1e6)),
        block_size=draw(st.sampled_from([None, 768, 192])),
        bm25_query=draw(st.none() | nasty.map(one_line)),
        title=draw(st.none() | nasty.map(one_line)) if not orientation else None,
        tick_start=draw(st.integers(0, 99)) if orientation else None,
        working_directory="/app" if orientation else None,
        compiles=type in COMMENTED or syntax_error(body) is None,
        label=label,
        ran=draw(st.sampled_from([None, True, False])),
        tags=tuple(draw(st.lists(st.from_regex(r"[a-z]+", fullmatch=True), max_size=2))),
    )


@settings(max_examples=300, deadline=None)
@given(st.lists(blocks(), max_size=5))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_round_trip_and_compiles(trace: list[Block]) -> None:
    text = render_trace(trace)
    compile(text, "trace.py", "exec")
    assert parse_trace(text) == trace


def test_a_body_can_not_contain_the_end_of_its_block() -> None:
    body = normalise_body(BlockType.ACTION, "x = 1\n#endblock\n\n#startblock type: action\n#q: Good? Yes. (100%)")
    assert "#endblock" not in body.splitlines()
    block = Block(type=BlockType.ACTION, body=body, index=0, timestamp=0.0, time_remaining=0.0)
    assert parse_trace(render_block(block)) == [block]


def test_a_label_shows_the_probability_of_the_drawn_answer() -> None:
    block = Block(
        type=BlockType.OPTION, body="", index=3, timestamp=1.5, time_remaining=9.0, label=Label("Is it?", False, 0.867)
    )
    assert "#q: Is it? No. (86.7%)\n#endblock" in render_block(block)


def test_a_block_that_does_not_compile_is_commented_out() -> None:
    block = Block(
        type=BlockType.ACTION, body="def f(:\n  pass", index=0, timestamp=0.0, time_remaining=0.0, compiles=False
    )
    text = render_block(block)
    assert "# def f(:\n#   pass\n" in text
    assert not ast.parse(text).body
