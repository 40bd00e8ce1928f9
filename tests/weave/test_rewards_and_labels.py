"""A tick's reward, the rewards of its blocks, preferences, and grounded labels."""

from typing import Any

import pytest

from tests.support.script import FAILURE, GOOD, MAIN, Script, T, execute, odds_for, tick, writes
from tests.support.worker import Worker, enqueue
from weavegen.agents.reward import preferences, reward
from weavegen.database import Database, Statement
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import Append, Evaluated, Executed
from weavegen.sandbox.environment import Environment
from weavegen.trace.blocks import Block, BlockType

TRUE = Evaluated(title="Is it?", scope="task", value=True)
FALSE = Evaluated(title="Is it?", scope="tick", value=False)
TRUTHY = Evaluated(title="Is it?", scope="tick", value=1)
RAISED = Evaluated(title="Is it?", scope="tick", error=FAILURE)


def recorded(*blocks: BlockType | tuple[BlockType, dict[str, Any]]) -> list[tuple[Append, Block]]:
    """Blocks from index 10 on, each with its Append effect."""
    result = []
    for index, item in enumerate(blocks, 10):
        type, fields = item if isinstance(item, tuple) else (item, {})
        block = Block(type=type, body="", index=index, timestamp=0.0, time_remaining=0.0)
        result.append((Append(type=type, body="", **fields), block))
    return result


# ---------------------------------------------------------------------------------------- the tick


@pytest.mark.parametrize(
    ("evaluations", "actions", "expected"),
    [
        ([TRUE], 1, 0.4),
        ([TRUE, FALSE], 1, 0.15),
        ([TRUE, TRUE, TRUE, FALSE], 2, 0.175),
        ([TRUE, TRUTHY, RAISED, FALSE], 1, 0.025),
        ([TRUE, FALSE], 3, 0.0),
        ([FALSE], 1, 0.0),
        ([], 1, 0.0),
        ([TRUE], 0, 0.5),
    ],
)
def test_the_reward_of_a_tick(evaluations: list[Evaluated], actions: int, expected: float) -> None:
    """Half the share of evaluations that are true, minus 0.1 for each action block, at least 0."""
    blocks = recorded(T.ORIENTATION, *[T.ACTION] * actions)
    assert reward(blocks, evaluations, Settings()).reward == pytest.approx(expected)


def test_the_tick_reward_goes_backwards_with_decay() -> None:
    """Debug, backtrack, action and orientation blocks get it, last to first, each 0.8 of the one after it."""
    blocks = recorded(
        T.TASK_REMINDER, T.OBSERVATION, T.ORIENTATION, T.ACTION, T.BACKTRACK, T.ACTION, T.ERROR, T.DEBUG, T.ACTION,
        T.EXPECTATION, T.OPTION, T.OBSERVATION_INFERENCE, T.EVALUATION, T.OUTCOME,
    )  # fmt: skip
    given = reward(blocks, [TRUE], Settings())
    assert given.reward == pytest.approx(0.2)
    assert given.shares == pytest.approx(
        {18: 0.2, 17: 0.2 * 0.8, 15: 0.2 * 0.8**2, 14: 0.2 * 0.8**3, 13: 0.2 * 0.8**4, 12: 0.2 * 0.8**5}
    )


def test_reward_of_a_whole_tick() -> None:
    """A tick with two actions, of whose two evaluations one is true; both reasoning blocks are rewarded."""
    trace = tick(runs=[Executed(error=FAILURE, subagents=(MAIN,))], evaluations=[TRUE, TRUE, TRUE, RAISED])
    [given] = trace.rewards
    assert given.reward == pytest.approx(0.5 * 3 / 4 - 0.2)
    types = {block.index: block.type for block in trace.blocks}
    assert [types[index] for index in sorted(given.shares)] == [T.ORIENTATION, T.ACTION, T.DEBUG, T.ACTION]


# -------------------------------------------------------------------------------- preference data

REASONING = (T.ORIENTATION, T.DEBUG, T.BACKTRACK)


@pytest.mark.parametrize("reasoning", REASONING)
@pytest.mark.parametrize(
    ("score", "given"),
    [
        (-3.0, 0.2), (1.99, 0.2), (2.0, 0.1), (2.99, 0.1), (3.0, 0.01), (3.99, 0.01), (4.0, 0.001), (4.99, 0.001),
        (5.0, 0.0), (9.0, 0.0),
    ],
)  # fmt: skip
def test_reasoning_before_an_action_that_ran_is_rewarded(reasoning: BlockType, score: float, given: float) -> None:
    """+0.2 for a score under 2, +0.1 from 2 to 3, +0.01 to 4, +0.001 to 5, nothing above."""
    blocks = recorded((reasoning, {"score": score}), (T.ACTION, {"ran": True, "score": 1.0}))
    assert preferences(blocks) == pytest.approx({10: given})


@pytest.mark.parametrize("reasoning", REASONING)
@pytest.mark.parametrize(
    ("score", "given"), [(-3.0, -0.1), (0.0, -0.1), (2.0, -0.1), (2.5, -0.15), (3.0, -0.2), (3.5, -0.25), (5.0, -0.4)]
)
def test_reasoning_before_an_action_that_failed_is_penalised(reasoning: BlockType, score: float, given: float) -> None:
    """-0.1 for a score up to 2; from 2 to 3 also a tenth of the score above 2; from 3 on 0.2 and a tenth of the score
    above 3."""
    blocks = recorded((reasoning, {"score": score}), (T.ACTION, {"ran": False, "exception": "OSError"}))
    assert preferences(blocks) == pytest.approx({10: given, 11: -0.5})


@pytest.mark.parametrize(
    ("exception", "lost"),
    [("AssertionError", 0.25), ("AttributeError", 1.0), ("KeyError", 0.5), ("SyntaxError", 0.5), (None, 0.5)],
)
def test_the_loss_of_a_failed_block_depends_on_its_exception(exception: str | None, lost: float) -> None:
    """0.25 for an AssertionError, 1.0 for an AttributeError (an invented method), 0.5 for any other exception."""
    assert preferences(recorded((T.ACTION, {"ran": False, "exception": exception}))) == {10: -lost}


def test_a_block_that_does_not_compile_loses_like_any_other_failure() -> None:
    """It was not run, but it failed: it loses 0.5, and the reasoning before it is penalised too."""
    trace = tick(s={"attempts": 1}, text=writes(T.ACTION, "def action_go(self:"), odds=odds_for(T.ORIENTATION, 2.5))
    [given] = trace.rewards
    types = {block.index: block.type for block in trace.blocks}
    assert {types[index]: value for index, value in given.preferences.items()} == pytest.approx(
        {T.ORIENTATION: -0.15, T.ACTION: -0.5}
    )


def test_each_reasoning_block_is_judged_by_the_block_after_it() -> None:
    """The orientation precedes the action that failed, the debug block the action that ran."""
    trace = tick(runs=[Executed(error=FAILURE, subagents=(MAIN,))], odds=lambda step, at: 2.5)
    [given] = trace.rewards
    types = [(block.type, given.preferences.get(block.index)) for block in trace.blocks]
    assert types[1:5] == [
        (T.ORIENTATION, pytest.approx(-0.15)),
        (T.ACTION, -0.5),
        (T.ERROR, None),
        (T.DEBUG, pytest.approx(0.1)),
    ]


def test_a_backtrack_block_is_judged_by_the_action_after_it() -> None:
    """The action that was taken back neither ran nor failed: it and the reasoning before it get no reward."""
    blocks = recorded(
        (T.ORIENTATION, {"score": 1.0}), T.ACTION, (T.BACKTRACK, {"score": 1.0}), (T.ACTION, {"ran": True})
    )
    assert preferences(blocks) == pytest.approx({12: 0.2})


# -------------------------------------------------------------------------------- grounded labels


def test_assertions_that_ask_a_question_are_grounded_labels(environment: Environment) -> None:
    """`assert cond, 'question?'` yields a label whether the condition holds or not."""
    source = (
        "def action_look(self):\n"
        "    assert 2 > 1, 'Is two more than one?'\n"
        "    assert True, 'no question'\n"
        "    assert 1 > 2, 'Is one more than two?'\n"
        "self.add_action('Look', action_look)\n"
    )
    done = execute(environment, "run", source, T.ACTION)
    assert [(assertion.question, assertion.answer) for assertion in done.assertions] == [
        ("Is two more than one?", True),
        ("Is one more than two?", False),
    ]
    assert done.error is not None
    assert done.error.type == "AssertionError"


@pytest.mark.parametrize("fails", [True, False])
def test_whether_a_block_ran_is_a_grounded_label(fails: bool) -> None:
    """This holds for actions and for evaluations."""
    runs = [Executed(error=FAILURE, subagents=(MAIN,))] if fails else []
    trace = tick(s={"attempts": 1}, runs=runs)
    assert [block.ran for block in trace.blocks if block.type is T.ACTION] == [not fails]
    assert {block.ran for block in trace.blocks if block.type in (T.ORIENTATION, T.OUTCOME)} == {None}


# -------------------------------------------------------- training data for each ability, in PostgreSQL


ABILITIES = {
    "valid blocks, by rejection sampling: losers beside the winner, with what was wrong": (
        "select count(*) from candidates c join penalties p on p.candidate_id = c.id"
        " where not exists (select from blocks where candidate_id = c.id) and p.rewritten is not null"
    ),
    "valid blocks, by error correction: a block that failed, its error, the debug block, the next attempt": (
        "select count(*) from blocks a join blocks e using (trace_id) join blocks d using (trace_id)"
        " join blocks n using (trace_id) where e.index = a.index + 1 and d.index = a.index + 2"
        " and n.index = a.index + 3 and a.type = n.type and e.type = 'error' and d.type = 'debug'"
    ),
    "yes/no logits: drawn labels": "select count(*) from blocks where question is not null and probability > 0",
    "yes/no logits: grounded ones": ("select count(*) from blocks where ran is not null and executed_by is not null"),
    "reasoning: debug blocks that led to a fix": (
        "select count(*) from blocks where type = 'debug' and preference > 0"
    ),
    "actions, by verifiers: what each tick's evaluations said": (
        "select count(*) from blocks b join evaluations v using (trace_id, tick)"
        " where b.type = 'action' and b.ran and v.value = 'true'"
    ),
    "verifiers: the evaluation block, whether it ran, and what it found": (
        "select count(*) from blocks b join evaluations v using (trace_id, tick)"
        " where b.type = 'evaluation' and b.ran and v.scope = 'tick'"
    ),
    "BM25 queries: each with the block that was written after it": (
        "select count(*) from blocks where bm25_query is not null and score is not null"
    ),
    "BM25 queries: the other samples of a query": "select count(*) from candidates where type = 'bm25-query'",
}


def test_the_tables_have_training_data_for_every_ability(db: Database) -> None:
    """The abilities are those that weave-agent's devlog lists."""
    enqueue(db, 1, ticks=1)
    worker = Worker(db)
    worker.world = Script(
        text=lambda step, at: GOOD[step.prompt.type] + ("\nx = 1" if at else ""),
        odds=lambda step, at: -9.0 if at else 3.0,
        runs=[Executed(subagents=(MAIN,)), Executed(error=FAILURE, subagents=(MAIN,))],
        evaluations=[TRUE, FALSE],
    )
    worker.run(worker.engine.start_queued())
    with db.connect() as conn:
        counts = {ability: conn.execute(Statement(query)).scalar_one() for ability, query in ABILITIES.items()}
    assert all(counts.values()), counts
