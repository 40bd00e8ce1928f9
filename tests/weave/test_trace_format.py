"""Header, body and footer of a block, the block types, and which type may follow which."""

import ast
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.support.script import FAILURE, GOOD, MAIN, T, execute, samples, tick, types
from weavegen.agents.tables import genesis
from weavegen.box import api
from weavegen.kernel.replay import Cursor, Start, record
from weavegen.kernel.steps import Append, Executed, View
from weavegen.sandbox.environment import Environment
from weavegen.trace.blocks import MESSAGE, SUCCESSORS, Block, BlockType, Label
from weavegen.trace.render import render_block


def block(type: BlockType = T.ACTION, body: str = "x = 1", **fields: object) -> Block:
    given = {"index": 7, "timestamp": 1700000000.5, "time_remaining": 90.25} | fields
    return Block(type=type, body=body, **given)  # type: ignore[arg-type]


def footer(block: Block) -> list[str]:
    """The lines after the body."""
    return render_block(block).split(f"{block.body}\n", 1)[1].splitlines()


# ------------------------------------------------------------------------------------------------ header


def test_the_header_of_an_observation_has_its_lines_in_order() -> None:
    """Subagent, type, index, timestamp, time remaining, block size, BM25 query, title; then the body."""
    text = render_block(
        block(T.OBSERVATION, "a lamp", subagent="reader", block_size=768, bm25_query="+lamp", title="Desk")
    )
    assert text.splitlines() == [
        "#subagent reader",
        "#startblock type: observation",
        "#index 7",
        "#timestamp 1700000000.5",
        "#time_remaining 90.25 seconds",
        "#block_size 768",
        "#bm25_query +lamp",
        "#title Desk",
        "# a lamp",
        "#endblock",
        "",
    ]


def test_the_header_of_an_orientation_says_where_the_tick_began_and_the_working_directory() -> None:
    """An orientation's header ends with the tick's first block and the working directory, as comments."""
    text = render_block(
        block(T.ORIENTATION, '"""I see."""', block_size=768, bm25_query="key", tick_start=4, working_directory="/app")
    )
    lines = text.splitlines()
    assert lines[5:8] == ["#block_size 768", "#bm25_query key", "# Starting new tick with block #4"]
    assert lines[8:10] == ["# Current Working Directory: /app", '"""I see."""']
    tick_of = tick(views=[View(title="Desk", text="a lamp")])
    [orientation] = [block for block in tick_of.blocks if block.type is T.ORIENTATION]
    assert (orientation.tick_start, orientation.working_directory) == (tick_of.blocks[0].index, "/app")


def test_header_lines_appear_only_where_they_apply() -> None:
    """A block that the model did not write has no block size, no query and no title."""
    assert [line.split()[0] for line in render_block(block()).splitlines()[:6]] == [
        "#subagent", "#startblock", "#index", "#timestamp", "#time_remaining", "x",
    ]  # fmt: skip
    written = {block.type: block for block in tick(views=[View(title="Desk")]).blocks}
    assert written[T.OBSERVATION].title == "Desk"
    assert written[T.OBSERVATION].block_size is None
    assert written[T.ACTION].title is None
    assert written[T.ACTION].block_size == 768
    assert written[T.ACTION].tick_start is None


@pytest.mark.parametrize("size", [768, 384, 192])
def test_a_full_block_has_768_tokens_a_half_384_a_quarter_192(size: int) -> None:
    """The header shows the size that the subagent has chosen, and this size limits the tokens."""
    trace = tick(subagents=[msgspec.structs.replace(MAIN, block_size=size)])
    assert samples(trace, T.ACTION)[0].max_tokens == size
    [action] = [block for block in trace.blocks if block.type is T.ACTION]
    assert f"\n#block_size {size}\n" in render_block(action)


def test_a_callback_chooses_the_size_of_later_blocks(environment: Environment) -> None:
    """Full, half or quarter. Any other number becomes the next larger of these sizes."""
    sizes = {}
    for size in (192, 384, 768, 1, 193, 5000):
        source = f"def action_size(self):\n    self.block_size = {size}\nself.add_action('Size', action_size)"
        [main] = execute(environment, "run", source, T.ACTION).subagents
        sizes[size] = main.block_size
    assert sizes == {192: 192, 384: 384, 768: 768, 1: 192, 193: 384, 5000: 768}


# -------------------------------------------------------------------------------------------------- body


def test_an_observation_is_commented_out_line_by_line() -> None:
    """Observation bodies are comments, so that the trace stays valid Python whatever was observed."""
    text = render_block(block(T.OBSERVATION, "def (:\n\n  lamp"))
    assert "\n# def (:\n# \n#   lamp\n#endblock\n" in text
    assert not ast.parse(text).body


@pytest.mark.parametrize("type", [T.ORIENTATION, T.DEBUG, T.BACKTRACK, T.EXPECTATION])
def test_prose_is_one_triple_quoted_string(type: BlockType) -> None:
    """The body of an orientation, debug, backtrack or expectation block is one triple-quoted string."""
    taken_back = iter([0.0])
    trace = tick(
        text=lambda step, at: GOOD[step.prompt.type] + ("\nx = 1" if step.prompt.type is type else ""),
        odds=lambda step, at: next(taken_back, 3.0) if step.prompt.type is T.ACTION else 3.0,
        s={"rounds": [1]},
        runs=[Executed(error=FAILURE, subagents=(MAIN,))],
    )
    bodies = [block.body for block in trace.blocks if block.type is type]
    assert bodies
    for body in bodies:
        assert body.startswith('"""')
        [only] = ast.parse(body).body
        assert isinstance(only, ast.Expr)
        assert isinstance(only.value, ast.Constant)
        assert isinstance(only.value.value, str)


def test_an_option_block_is_a_single_question_line() -> None:
    """Between its header and its end, an option block has only one `#q:` line."""
    [option] = [block for block in tick().blocks if block.type is T.OPTION]
    lines = render_block(option).splitlines()
    assert lines[5].startswith("#q: ")
    assert lines[6:] == ["#endblock", ""]


# ------------------------------------------------------------------------------------------------ footer


@pytest.mark.parametrize(
    ("answer", "probability", "shown"), [(True, 0.94371, "Yes. (94.371%)"), (False, 0.867, "No. (86.7%)")]
)
def test_a_label_shows_the_percentage_of_the_drawn_answer(answer: bool, probability: float, shown: str) -> None:
    """`#q: QUESTION Yes. (94.371%)`; for a no, the percentage is the probability of no."""
    assert footer(block(label=Label("Is it good?", answer, probability)))[0] == f"#q: Is it good? {shown}"


def recorded(seed: int, yes: float) -> Block:
    start = Start(trace_seed=seed, tick=1, clock=0.0, deadline=9.0, blocks=3, last_type=T.ORIENTATION)
    return record(Append(type=T.ACTION, body="x", question="Is it good?", yes=yes), Cursor(start))


def test_a_label_is_drawn_with_the_models_own_probability() -> None:
    """At a probability of 80%, yes is drawn four times in five. A label says 80% for yes, and 20% for no."""
    labels = [recorded(seed, 0.8).label for seed in range(3000)]
    drawn = Counter((label.answer, label.probability) for label in labels if label)
    assert set(drawn) == {(True, 0.8), (False, 0.2)}
    assert 2310 < drawn[True, 0.8] < 2490


def test_a_label_is_drawn_once_when_the_block_is_recorded() -> None:
    """Unlike in weave-agent, which draws at every render, a block's text never changes."""
    blocks = [recorded(seed, 0.5) for seed in range(20)]
    assert {item.label.answer for item in blocks if item.label} == {True, False}
    assert [render_block(item) for item in blocks] == [render_block(item) for item in blocks]
    assert blocks == [recorded(seed, 0.5) for seed in range(20)]


def test_an_executed_block_says_whether_it_ran_without_errors() -> None:
    """The executed block has a second `#q:` line, answered by what really happened, without a percentage."""
    trace = tick(runs=[Executed(error=FAILURE, subagents=(MAIN,))])
    first, second = [block for block in trace.blocks if block.type is T.ACTION]
    lines = {item: [line for line in footer(item) if line.startswith("#q: ")] for item in (first, second)}
    assert [len(label_lines) for label_lines in lines.values()] == [2, 2]
    assert "without errors? No." in lines[first][1]
    assert "without errors? Yes." in lines[second][1]
    assert "%" not in lines[first][1]


def test_a_block_that_was_not_executed_does_not_say_whether_it_ran() -> None:
    """Reasoning blocks have only the drawn label."""
    [orientation] = [block for block in tick().blocks if block.type is T.ORIENTATION]
    assert sum(line.startswith("#q: ") for line in footer(orientation)) == 1


def test_the_footer_ends_with_tags_and_the_end_of_the_block() -> None:
    """Drawn label, whether the block ran, tags if there are any, `#endblock`."""
    lines = footer(block(label=Label("Is it?", True, 0.5), ran=True, tags=("doom-loop", "late")))
    assert [line.split()[0] for line in lines if line] == ["#q:", "#q:", "#tags:", "#endblock"]
    assert lines[2] == "#tags: doom-loop late"
    assert not any(line.startswith("#tags") for line in footer(block()))


# ------------------------------------------------------------------------------------------------- types


def test_the_types_of_blocks() -> None:
    """There are fourteen types, `return` for subagents, and the types of messages, which other agents use."""
    assert set(BlockType) - MESSAGE == {
        "genesis", "bootstrap", "task-reminder", "observation", "orientation", "action", "error", "debug",
        "backtrack", "expectation", "option", "observation-inference", "evaluation", "outcome", "return",
    }  # fmt: skip


def test_the_trace_begins_with_genesis_bootstrap_and_outcome() -> None:
    """The genesis block that the model reads is the text of the code that runs."""
    trace = tick(0)
    assert types(trace) == [T.GENESIS, T.BOOTSTRAP, T.OUTCOME]
    assert trace.blocks[0].body.strip() == genesis().strip() == Path(api.__file__).read_text().strip()
    assert "def add_action(" in trace.blocks[0].body


LEGAL = {
    "observation": "observation orientation error",
    "task-reminder": "observation orientation",
    "orientation": "action error",
    "action": "expectation error backtrack",
    "error": "debug action evaluation outcome task-reminder error",
    "debug": "action evaluation task-reminder error expectation",
    "backtrack": "action evaluation task-reminder error",
    "expectation": "option observation-inference task-reminder error",
    "option": "observation-inference evaluation",
    "observation-inference": "evaluation error task-reminder",
    "evaluation": "outcome error",
    "outcome": "task-reminder error",
}
WIDER = {
    "task-reminder": "error",
    "error": "observation orientation expectation return",
    "action": "task-reminder return orientation debug",
    "outcome": "return outcome user",
    **dict.fromkeys(("orientation", "debug", "backtrack", "expectation"), "return"),
}
"""What weavegen allows in addition: a failing view is an error block before the orientation, a subagent's ticks
stand between its caller's action and the return block, what another agent returns follows the action, an action may
have reasoning written before its return, a callback that succeeds may add an error block, and the verification of a
Harbor task is an outcome by itself, before the next instruction."""


@pytest.mark.parametrize("type", LEGAL)
def test_which_block_may_follow_which(type: str) -> None:
    """The successor table, and no other successor. docs/weave.md lists what weavegen allows in addition."""
    allowed = {*LEGAL[type].split(), *WIDER.get(type, "").split()}
    assert SUCCESSORS[BlockType(type)] == allowed
    start = Start(trace_seed=1, tick=1, clock=0.0, deadline=9.0, blocks=3, last_type=BlockType(type))
    for other in BlockType:
        if other in allowed:
            assert record(Append(type=other, body=""), Cursor(start)).type is other
        else:
            with pytest.raises(ValueError, match="may not follow"):
                record(Append(type=other, body=""), Cursor(start))


@pytest.mark.parametrize("type", [T.GENESIS, T.BOOTSTRAP])
def test_anything_may_follow_genesis_and_bootstrap(type: BlockType) -> None:
    """Any type may follow these two."""
    assert SUCCESSORS[type] == set(BlockType)
