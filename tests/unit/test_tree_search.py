"""Tree search as a program: budgets, which node continues which, unfinished and finished nodes, replay."""

from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.templates import MISTRAL
from tests.support.world import Trace, World
from weavegen.agents.program import Tick
from weavegen.agents.write_block import write_block
from weavegen.errors import UsageError
from weavegen.kernel import replay
from weavegen.kernel.context import block_stops, without_begun_stop
from weavegen.kernel.replay import Cursor, Start
from weavegen.kernel.settings import BlockSettings, Settings
from weavegen.kernel.settings import settings as read_settings
from weavegen.kernel.steps import Candidate, Execute, Lint, Sample, Score, YesNo
from weavegen.linting.lint import verdict
from weavegen.trace.blocks import SUCCESSORS, BlockType

SMALL: dict[str, Any] = {
    "search": "tree",
    "tree_first": 0,
    "tree_nodes": 18,
    "tree_round": 7,
    "tree_children": 3,
    "tree_tokens": 20,
    "types": {"orientation": {"tree_nodes": 18}},
}
seeds = st.integers(0, 10**6)


def small(**others: Any) -> Settings:
    return read_settings({**SMALL, **others})


def trees(trace: Trace) -> list[list[int]]:
    """For each tree, the ordinals of its Sample steps."""
    result: list[list[int]] = []
    for ordinal, entry in enumerate(trace.journal):
        if isinstance(entry.step, Sample) and entry.step.depth:
            if entry.step.parent is None:
                result.append([])
            result[-1].append(ordinal)
    return result


def sample_step(trace: Trace, ordinal: int) -> Sample:
    step = trace.journal[ordinal].step
    assert isinstance(step, Sample)
    return step


def nodes(trace: Trace, ordinal: int) -> list[Candidate]:
    candidates: list[Candidate] = trace.journal[ordinal].result
    return candidates


@settings(max_examples=20, deadline=None)
@given(seeds, st.floats(0, 1), st.integers(1, 3), st.integers(1, 3))
def test_a_tree_keeps_its_budgets_and_grows_from_its_own_open_nodes(
    seed: int, kindness: float, beam: int, lookahead: int
) -> None:
    s = small(tree_beam=beam, tree_lookahead=lookahead, max_tokens=50)
    trace = Trace(World(seed, kindness), 1, s).run()
    assert trace.ended is not None
    for before, after in zip(trace.blocks, trace.blocks[1:], strict=False):
        assert after.type in SUCCESSORS[before.type]
    all_trees = trees(trace)
    assert all_trees
    for tree in all_trees:
        rounds: dict[int, int] = defaultdict(int)
        expanded: set[tuple[int, int]] = set()
        written: dict[tuple[int, int] | None, int] = {None: 0}
        for ordinal in tree:
            step = sample_step(trace, ordinal)
            rounds[step.round] += step.n
            assert step.n <= 3
            assert step.max_tokens <= min(20, 50 - written[step.parent])
            if step.parent is None:
                assert step.depth == 1
            else:
                assert step.parent not in expanded
                expanded.add(step.parent)
                assert step.parent[0] in tree
                parent = nodes(trace, step.parent[0])[step.parent[1]]
                assert parent.finish_reason == "length"
                assert step.depth == sample_step(trace, step.parent[0]).depth + 1
                assert all(node.text.startswith(parent.text) for node in nodes(trace, ordinal))
            for position, node in enumerate(nodes(trace, ordinal)):
                written[ordinal, position] = written[step.parent] + node.tokens
        assert list(rounds) == list(range(1, len(rounds) + 1))
        assert sum(rounds.values()) <= 18
        assert max(rounds.values()) <= 7
        assert max(written.values()) <= 50


@settings(max_examples=8, deadline=None)
@given(seeds, st.data())
def test_any_order_of_deliveries_gives_the_same_trace(seed: int, data: st.DataObject) -> None:
    plain = Trace(World(seed), 1, small()).run()
    wild = Trace(World(seed), 1, small()).run(pick=lambda open: data.draw(st.sampled_from(open)))
    assert wild.blocks == plain.blocks
    assert wild.journal == plain.journal
    for entry in plain.journal:
        kind = entry.step.__struct_config__.tag
        step = msgspec.json.decode(replay.encode(entry.step))
        assert replay.decode_step(kind, step) == entry.step
        result = msgspec.json.decode(replay.encode(entry.result))
        assert replay.decode_result(kind, result) == entry.result


def test_a_long_block_is_written_in_pieces() -> None:
    trace = Trace(World(4, 1.0), 1, small(tree_nodes=60, tree_round=12)).run()
    [action] = [block for block in trace.blocks if block.type is BlockType.ACTION]
    assert action.compiles
    chosen = max(
        sample_step(trace, ordinal).depth
        for tree in trees(trace)
        for ordinal in tree
        if any(node.text.strip() == action.body for node in nodes(trace, ordinal))
    )
    assert chosen == len(action.body) // 20 + 1 == 5


def test_keeping_a_finished_node_ends_the_search() -> None:
    trace = Trace(World(4, 1.0), 1, small(tree_tokens=700)).run()
    for tree in trees(trace):
        assert len({sample_step(trace, ordinal).round for ordinal in tree}) == 1
        assert {sample_step(trace, ordinal).depth for ordinal in tree} == {1}
    assert all(block.compiles for block in trace.blocks)


def test_a_block_that_does_not_end_within_the_budget_is_cut_off() -> None:
    trace = Trace(World(4, 1.0), 1, small(tree_tokens=1, tree_nodes=4)).run()
    [orientation, error] = [block for block in trace.blocks if block.type in ("orientation", "error")][:2]
    assert not orientation.compiles
    assert "was cut off before its end" in error.body


def test_a_block_has_at_most_its_number_of_tokens() -> None:
    trace = Trace(World(4, 1.0), 1, small(max_tokens=45)).run()
    assert "ran over its 45 tokens" in next(
        block.body for block in trace.blocks if block.type is BlockType.ERROR and "tokens" in block.body
    )


class Judge(World):
    """Gives every text the same score."""

    def __init__(self, yes: float) -> None:
        super().__init__(1, 1.0)
        self.yes = yes

    def _answer(self, rng: Any) -> YesNo:
        return YesNo(yes=self.yes, no=1 - self.yes)


@pytest.mark.parametrize(("yes", "grown"), [(0.95, False), (0.9, True)])
def test_a_good_first_round_skips_the_tree(yes: float, grown: bool) -> None:
    """The limit of 2.5 is between the log odds of 0.9 and of 0.95."""
    trace = Trace(Judge(yes), 1, small(tree_first=5)).run()
    steps = [entry.step for entry in trace.journal if isinstance(entry.step, Sample) and not entry.step.prompt.query]
    of_action = [step for step in steps if step.prompt.type is BlockType.ACTION]
    assert (of_action[0].n, of_action[0].round, of_action[0].depth) == (5, 0, 0)
    assert any(step.depth for step in of_action) == grown
    of_orientation = [step for step in steps if step.prompt.type is BlockType.ORIENTATION]
    assert all(step.depth for step in of_orientation), "an orientation starts with the tree"


def test_retrieval_comes_before_the_tree() -> None:
    trace = Trace(World(4, 1.0), 1, small()).run()
    kinds = [
        (entry.step.prompt.query, bool(entry.step.prompt.recalled))
        for entry in trace.journal
        if isinstance(entry.step, Sample) and entry.step.prompt.type is BlockType.ORIENTATION
    ]
    assert kinds[0] == (True, False)
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds[1:]) <= {(True, False), (False, True)}


def test_unfinished_nodes_are_penalised_only_for_errors_that_can_not_be_repaired() -> None:
    step = Lint(type=BlockType.ACTION, sample=0, pieces=True, before=300, after_debug=True)
    open_text, broken = "def action_a(self):\n    x = (", "def action_a(self):\n    x = )"
    assert [verdict(step, text, 20, cut=True).viable for text in (open_text, broken)] == [True, False]
    assert verdict(step, open_text, 20).viable is None
    assert verdict(step, open_text, 20).penalties.syntax == 2.0
    assert verdict(step, open_text, 20).penalties.length_after_debug == pytest.approx((320 - 96) * 0.5 / 672)
    whole = Lint(type=BlockType.ACTION, sample=0)
    assert verdict(whole, open_text, 20, cut=True).viable is None


def test_a_node_ends_before_a_possible_beginning_of_a_stop_string() -> None:
    stops = block_stops(MISTRAL)
    assert without_begun_stop("x = 1\n#", stops) == "x = 1"
    assert without_begun_stop("x = 1\n\n#q:", stops) == "x = 1"
    assert without_begun_stop("x = a[", stops) == "x = a"
    assert without_begun_stop("x = 1\n    ", stops) == "x = 1\n    "
    for word in stops:
        for end in range(1, len(word)):
            assert without_begun_stop("text" + word[:end], stops) == "text"


def test_the_journal_refers_to_a_node_and_does_not_repeat_its_text() -> None:
    trace = Trace(World(4, 1.0), 1, small()).run()
    for tree in trees(trace):
        for ordinal in tree[1:]:
            step = sample_step(trace, ordinal)
            assert step.parent is not None
            above = nodes(trace, step.parent[0])[step.parent[1]].text
            assert msgspec.json.encode(above)[1:-1] not in replay.encode(step)


# ------------------------------------------------------------------------------- settings of a block type


def test_each_block_type_has_its_own_settings() -> None:
    s = read_settings({"accept": 2, "types": {"action": {"rounds": [8, 32]}, "orientation": {"max_tokens": 384}}})
    assert s.of("action").rounds == (8, 32)
    assert s.of("action").accept == s.of("debug").accept == 2
    assert s.of("debug").rounds == BlockSettings().rounds
    assert (s.of("orientation").max_tokens, s.of("action").max_tokens) == (384, 768)


def test_a_search_that_tries_begins_with_one_candidate() -> None:
    s = read_settings({"types": {"action": {"search": "execute"}}})
    assert (s.of("action").rounds, s.of("debug").rounds) == ((1, 4, 16), BlockSettings().rounds)
    assert read_settings({"search": "execute", "rounds": [8]}).of("action").rounds == (8,)


def test_defaults_for_orientations_are_overridden_by_settings() -> None:
    def tree(values: dict[str, Any], type: str = "orientation") -> tuple[int, int, int]:
        s = read_settings(values).of(type)
        return s.tree_nodes, s.tree_round, s.tree_children

    assert tree({}, "action") == (72, 24, 16)
    assert tree({}) == (288, 96, 32)
    assert tree({"tree_nodes": 10}) == (10, 96, 32)
    assert tree({"types": {"orientation": {"tree_round": 5}}}) == (288, 5, 32)


@pytest.mark.parametrize(("most", "size", "tokens"), [(768, 192, 192), (1000, 384, 500), (1, 192, 1)])
def test_a_subagents_block_size_is_a_share_of_the_types_tokens(most: int, size: int, tokens: int) -> None:
    start = Start(trace_seed=1, tick=1, clock=9.0, deadline=99.0, blocks=3, last_type=BlockType.ORIENTATION)
    tick = Tick(read_settings({"types": {"action": {"max_tokens": most}}}), Cursor(start), block_size=size)
    step = next(write_block(tick, BlockType.ACTION))
    assert isinstance(step, Sample)
    assert step.max_tokens == tokens
    assert f"#block_size {tokens}\n" in step.prompt.header


def test_planning_grows_trees_too() -> None:
    trace = Trace(World(4, 1.0), 1, small(), agent="planning").run()
    assert trees(trace)
    assert trace.blocks[-1].type is BlockType.OUTCOME


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"speech": {"rounds": [1]}}, "speech"),
        ({"genesis": {"rounds": [1]}}, "genesis"),
        ({"action": {"ticks": 1}}, "action.ticks"),
        ({"action": {"window": 5}}, "action.window"),
        ({"action": {"speed": 5}}, "action.speed"),
        ({"action": {"rounds": []}}, "action: rounds"),
        ({"debug": {"accept": "high"}}, "debug: .*accept"),
        ({"debug": 5}, "types"),
    ],
)
def test_invalid_settings_of_a_type_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings({"types": wrong})


@pytest.mark.parametrize(
    "name",
    ["tree_nodes", "tree_round", "tree_children", "tree_tokens", "tree_beam", "tree_lookahead", "tree_temperature"],
)
def test_the_numbers_of_a_tree_are_positive(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        read_settings({name: 0})


def test_a_block_is_sampled_with_the_settings_of_its_type() -> None:
    s = read_settings(
        {
            "rounds": [2],
            "types": {
                "action": {"rounds": [3], "temperature": 0.5, "max_tokens": 99, "all_questions": True},
                "expectation": {"search": "tree", "tree_first": 0},
            },
        }
    )
    trace = Trace(World(4, 1.0), 1, s).run()
    for entry in trace.journal:
        if isinstance(entry.step, Sample) and not entry.step.prompt.query:
            type, step = entry.step.prompt.type, entry.step
            expected = (3, 0.5, 99) if type is BlockType.ACTION else (2, 1.0, 768)
            if type is BlockType.EXPECTATION:
                assert step.depth
            else:
                assert (step.n, step.temperature, step.max_tokens) == expected
        if isinstance(entry.step, Score) and entry.step.sample is not None:
            assert len(entry.step.questions) == 1 + (entry.step.prompt.type is BlockType.ACTION)
    [action] = [block for block in trace.blocks if block.type is BlockType.ACTION]
    assert action.block_size == 99
    assert any(isinstance(entry.step, Execute) for entry in trace.journal)
