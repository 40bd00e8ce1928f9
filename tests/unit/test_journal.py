"""Replay: any interleaving of duplicate, lost and reordered deliveries gives the same trace."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rendering import render_trace
from tests.support.script import GOOD, Script, odds_for
from tests.support.world import Trace, World
from weavegen.agents.program import Tick
from weavegen.engine.execution import lost
from weavegen.errors import JournalMismatch, ModelError
from weavegen.kernel import replay
from weavegen.kernel.replay import Advance, Cursor, Entry, Program, Start, draw_label
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import (
    Append,
    Effect,
    Ended,
    Execute,
    Executed,
    Note,
    Prompt,
    Retrieve,
    RunSubagent,
    Sample,
    Score,
    Step,
    SubagentDone,
)
from weavegen.trace.blocks import SUCCESSORS, BlockType
from weavegen.trace.render import parse_trace

START = Start(trace_seed=1, tick=1, clock=100.0, deadline=1000.0, blocks=3, last_type=BlockType.OUTCOME)
seeds = st.integers(0, 10**6)


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(0, 1), st.data())
def test_any_order_of_deliveries_gives_the_same_trace(seed: int, number: int, data: st.DataObject) -> None:
    plain = Trace(World(seed), number).run()
    wild = Trace(World(seed), number)
    wild.advance()
    while wild.ended is None:
        # finish: a delivery is processed. duplicate: a finished delivery arrives again. lost: the sweeper only
        # advances. An advance may also come at any time and any number of times.
        what = data.draw(st.sampled_from(["finish", "duplicate", "lost"]))
        if what == "finish":
            wild.finish(data.draw(st.sampled_from(wild.open)))
        elif what == "duplicate":
            done = data.draw(st.integers(0, len(wild.journal) - 1))
            if done not in wild.open:
                assert not wild.finish(done)
        for _ in range(data.draw(st.integers(0, 2))):
            wild.advance()
        if not wild.open:
            wild.advance()
    assert wild.blocks == plain.blocks
    assert wild.journal == plain.journal
    assert wild.rewards == plain.rewards


@settings(max_examples=150, deadline=None)
@given(seeds, st.floats(0, 1), st.integers(0, 1))
def test_every_successor_is_legal_and_every_block_is_recorded_once(seed: int, kindness: float, number: int) -> None:
    trace = Trace(World(seed, kindness), number).run()
    first = 3 if number else 0
    assert [block.index for block in trace.blocks] == list(range(first, first + len(trace.blocks)))
    for before, after in zip(trace.blocks, trace.blocks[1:], strict=False):
        assert after.type in SUCCESSORS[before.type]


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_steps_and_results_survive_json_encoding(seed: int) -> None:
    for entry in Trace(World(seed, 0.5)).run().journal:
        kind = entry.step.__struct_config__.tag
        step = msgspec.json.decode(replay.encode(entry.step))
        assert replay.decode_step(kind, step) == entry.step
        result = msgspec.json.decode(replay.encode(entry.result))
        assert replay.decode_result(kind, result) == entry.result


def program_of(cursor: Cursor, *parts: Step | tuple[Step, ...] | Effect) -> Program:
    for part in parts:
        if isinstance(part, Append):
            cursor.append(part)
        elif isinstance(part, Effect):
            cursor.emit(part)
        else:
            yield part
    return Ended(done=False)


def replayed(entries: list[Entry], *parts: Step | tuple[Step, ...] | Effect) -> Advance:
    cursor = Cursor(START)
    return replay.replay(program_of(cursor, *parts), cursor, entries)


def test_a_changed_program_is_detected() -> None:
    entries = [Entry(Execute(op="begin"), done=True, result=Executed(), at=101.0)]
    with pytest.raises(JournalMismatch, match="step 0 of tick 1"):
        replayed(entries, Execute(op="evaluate"))
    with pytest.raises(JournalMismatch, match="ended before its journal"):
        replayed(entries)
    with pytest.raises(JournalMismatch, match="inside a group"):
        replayed(entries, (Execute(op="begin"), Execute(op="evaluate")))
    with pytest.raises(JournalMismatch, match="can't read"):
        replay.decode_step("sample", {"n": "many"})


def test_a_program_that_yields_or_returns_something_else_is_a_bug() -> None:
    def unended() -> Any:
        yield Execute(op="begin")

    done = [Entry(Execute(op="begin"), done=True, result=Executed(), at=101.0)]
    with pytest.raises(TypeError, match="returned None instead of Ended"):
        replay.replay(unended(), Cursor(START), done)
    no_step: Any
    for no_step in ((), unended(), "text", (Execute(op="begin"), "text")):
        with pytest.raises(TypeError, match="is no step"):
            replayed([], no_step)
    with pytest.raises(TypeError, match="Path"):
        replayed([], Execute(op=Path("begin")))  # type: ignore[arg-type]


def test_lists_and_tuples_are_the_same_step() -> None:
    prompt = Prompt(type=BlockType.ACTION, header="", window=(0, 1))
    listed: Any = Score(prompt=prompt, questions=["Is it?"], sample=0)  # type: ignore[arg-type]
    journal = replay.decode_step("score", msgspec.json.decode(replay.encode(listed)))
    assert replayed([Entry(journal)], listed).ended is None


def test_what_a_program_does_while_it_is_closed_has_not_happened() -> None:
    def tidy(cursor: Cursor) -> Program:
        try:
            yield Execute(op="begin")
        finally:
            cursor.emit(Note(kind="over", detail=""))
        return Ended(done=True)

    cursor = Cursor(START)
    assert not replay.replay(tidy(cursor), cursor, []).effects
    done = [Entry(Execute(op="begin"), done=True, result=Executed(), at=101.0)]
    cursor = Cursor(START)
    assert len(replay.replay(tidy(cursor), cursor, done).effects) == 1


def test_effects_take_place_once() -> None:
    program = (Note(kind="a", detail=""), Execute(op="begin"), Note(kind="b", detail=""))
    first = replayed([], *program)
    assert [effect.kind for effect, _ in first.effects] == ["a"]
    assert first.steps == [(0, Execute(op="begin"))]
    waiting = replayed([Entry(Execute(op="begin"))], *program)
    assert not waiting.effects
    assert not waiting.steps
    assert waiting.ended is None
    done = [Entry(Execute(op="begin"), done=True, result=Executed(), at=101.0)]
    last = replayed(done, *program)
    assert [effect.kind for effect, _ in last.effects] == ["b"]
    assert last.ended == Ended(done=False)


def test_a_step_that_fails_raises_inside_the_program() -> None:
    caught = []

    def careful() -> Program:
        try:
            yield Execute(op="begin")
        except ModelError as error:
            caught.append(str(error))
        return Ended(done=True)

    failed = [Entry(Execute(op="begin"), done=True, failure=ModelError("context too long"), at=101.0)]
    assert replay.replay(careful(), Cursor(START), failed).ended == Ended(done=True)
    assert caught == ["context too long"]
    uncaught = replayed(failed, Execute(op="begin"))
    assert uncaught.ended == Ended(done=True, failed="model", reason="context too long")


def test_the_clock_is_the_time_of_the_last_result() -> None:
    query = Retrieve(query="q", before=3, top_k_hits=25, least_score=2.0, limit=3)
    both = (Execute(op="begin"), query)
    entries = [Entry(both[0], done=True, result=Executed(), at=105.0), Entry(both[1], done=True, result=[], at=104.0)]
    advance = replayed(entries, both, Append(type=BlockType.TASK_REMINDER, body="b"))
    [(_, block)] = advance.effects
    assert block is not None
    assert (block.timestamp, block.time_remaining, block.index) == (105.0, 895.0, 3)


def test_an_illegal_successor_is_a_bug() -> None:
    with pytest.raises(ValueError, match="may not follow"):
        replayed([], Append(type=BlockType.EVALUATION, body=""))


def test_labels_are_drawn_with_the_models_own_probability() -> None:
    from weavegen.kernel.seeds import derive_seed

    labels = [draw_label("Is it?", 0.75, derive_seed(seed)) for seed in range(4000)]
    yes = sum(label.answer for label in labels if label is not None)
    assert 2900 < yes < 3100
    assert {label.probability for label in labels if label is not None} == {0.75, 0.25}
    assert draw_label(None, 0.5, 1) is None


def test_a_setting_asks_every_question_of_the_rubric() -> None:
    def asked(everything: bool) -> int:
        trace = Trace(World(3, 1.0), 1, Settings(rounds=(4,), all_questions=everything)).run()
        return max(len(entry.step.questions) for entry in trace.journal if isinstance(entry.step, Score))

    assert asked(False) == 1
    assert asked(True) == 2


def test_only_a_query_that_parses_is_in_the_header() -> None:
    seen = set()
    for seed in range(40):
        trace = Trace(World(seed, 1.0), 1, Settings(query_samples=1, rounds=(1, 1))).run()
        [orientation] = [block for block in trace.blocks if block.type is BlockType.ORIENTATION]
        retrieved = any(isinstance(entry.step, Retrieve) for entry in trace.journal[:8])
        assert (orientation.bm25_query is not None) == retrieved
        seen.add(retrieved)
        if orientation.bm25_query is not None:
            assert orientation.bm25_query.startswith("type:'orientation' ")
    assert seen == {True, False}


def test_a_tick_needs_at_most_one_replay_per_step() -> None:
    trace = Trace(World(3, 1.0), 1, Settings(rounds=(4,))).run()
    assert trace.replays <= len(trace.journal) + 1
    assert Tick(Settings(), Cursor(START)).number == 1


@settings(max_examples=60, deadline=None)
@given(seeds, st.floats(0.2, 1))
def test_planning_executes_nothing(seed: int, kindness: float) -> None:
    trace = Trace(World(seed, kindness), agent="planning").run()
    executed = [entry.step for entry in trace.journal if isinstance(entry.step, Execute)]
    assert [step.op for step in executed] == ["list"]
    assert trace.rewards == []
    types = [block.type for block in trace.blocks]
    assert types[:4] == [BlockType.TASK_REMINDER, BlockType.OBSERVATION, BlockType.OBSERVATION, BlockType.ORIENTATION]
    assert types[-1] is BlockType.OUTCOME
    for before, after in zip(trace.blocks, trace.blocks[1:], strict=False):
        assert after.type in SUCCESSORS[before.type]
    written = [block for block in trace.blocks if block.type in (BlockType.OBSERVATION, BlockType.OUTCOME)]
    assert all(block.block_size for block in written)
    scored = [answers for entry in trace.journal if isinstance(entry.step, Score) for answers in entry.result]
    undefined = [answer for answers in scored for answer in answers if answer.yes + answer.no <= 0]
    assert sum(block.label is None for block in written) <= len(undefined)
    assert all(block.ran is None for block in trace.blocks)
    text = render_trace(trace.blocks)
    compile(text, "trace.py", "exec")
    assert parse_trace(text) == trace.blocks
    headers = [entry for entry in trace.journal if isinstance(entry.step, Sample) and entry.step.prompt.next]
    assert all(isinstance(entry.step, Sample) and entry.step.n == 16 for entry in headers)


def test_a_planned_action_fails_if_the_model_says_that_an_error_comes_next() -> None:
    seen = set()
    for seed in range(30):
        trace = Trace(World(seed), agent="planning").run()
        for entry in trace.journal:
            if isinstance(entry.step, Sample) and entry.step.prompt.next:
                legal = [
                    candidate.text for candidate in entry.result if candidate.text in SUCCESSORS[entry.step.prompt.type]
                ]
                block = trace.blocks[entry.step.prompt.window[1] - trace.start.blocks]
                assert (block.type is BlockType.ERROR) is (legal[:1] == ["error"])
                seen.add(block.type)
    assert BlockType.ERROR in seen
    assert BlockType.EXPECTATION in seen


@pytest.mark.parametrize(("fails", "done"), [({}, True), ({BlockType.EVALUATION}, True), ({BlockType.ACTION}, False)])
def test_a_planned_trace_ends_where_its_last_action_returns(fails: set[BlockType], done: bool) -> None:
    returns = "def action_end(self):\n    self.return_to_caller({})\nself.add_action('End', action_end)"

    def text(step: Sample, at: int) -> str:
        type = step.prompt.type
        if step.prompt.next:
            return "error" if type in fails else "expectation" if type is BlockType.ACTION else "outcome"
        return returns if type is BlockType.ACTION else GOOD.get(type, "# self.return_to_caller({})\n# ValueError")

    trace = Trace(Script(text=text), agent="planning").run()
    assert trace.ended is not None
    assert trace.ended.ended is not None
    assert trace.ended.ended.done is done


def test_a_planned_action_that_is_taken_back_does_not_end_the_trace() -> None:
    returns = "def action_end(self):\n    self.return_to_caller({})\nself.add_action('End', action_end)"

    def text(step: Sample, at: int) -> str:
        type, acted = step.prompt.type, step.prompt.window[1] > 5
        if step.prompt.next:
            return "expectation" if type is BlockType.ACTION else "outcome"
        if type is BlockType.ACTION:
            return "def action_" if acted else returns
        return GOOD.get(type, "# nothing")

    odds = odds_for(BlockType.ACTION, -3.0)
    trace = Trace(Script(text=text, odds=odds, raw=-3.0), 1, Settings(attempts=2), agent="planning").run()
    types = [block.type for block in trace.blocks]
    acted = types.index(BlockType.ACTION)
    assert types[acted : acted + 4] == [BlockType.ACTION, BlockType.BACKTRACK, BlockType.ACTION, BlockType.ERROR]
    assert trace.ended is not None
    assert trace.ended.ended is not None
    assert trace.ended.ended.done is False


def test_a_broken_tree_of_subagents_ends_the_trace_with_the_reason() -> None:
    class Broken(World):
        def answer(self, step: Step, journal: list[Entry]) -> Any:
            answer = super().answer(step, journal)
            broken = isinstance(step, Execute) and step.op == "evaluate"
            return msgspec.structs.replace(answer, subagents=()) if broken else answer

    trace = Trace(Broken(1)).run()
    assert trace.ended is not None
    assert trace.ended.ended is not None
    assert trace.ended.ended.failed == "environment"
    assert "'main'" in (trace.ended.ended.reason or "")


def test_an_action_whose_process_dies_after_its_subagent_returned_is_tried_again() -> None:
    class Deadly(World):
        def answer(self, step: Step, journal: list[Entry]) -> Any:
            answer = super().answer(step, journal)
            if isinstance(step, RunSubagent):
                return SubagentDone(index=9, last_type=BlockType.OUTCOME)
            return lost("the environment process died") if isinstance(step, Execute) and step.op == "resume" else answer

    trace = Trace(Deadly(1, kindness=1.0, calls=1.0)).run()
    assert trace.ended is not None
    assert trace.ended.ended is not None
    assert trace.ended.ended.failed is None
    returns = [index for index, block in enumerate(trace.blocks) if block.type is BlockType.RETURN]
    assert len(returns) == 3, "as many as an action has attempts"
    for index in returns:
        assert trace.blocks[index].body == "main.1's result was lost: its caller's process died."
        assert trace.blocks[index].ran is False
        assert trace.blocks[index + 1].type is BlockType.ERROR
    assert trace.blocks[returns[0] + 2].type is BlockType.DEBUG
