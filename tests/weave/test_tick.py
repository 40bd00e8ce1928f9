"""The nine stages of a tick, and how a run ends. docs/weave.md numbers the stages."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.script import FAILURE, MAIN, T, execute, odds_for, samples, steps, tick, types, writes
from weavegen.agents.tables import problem_map
from weavegen.engine.advance import spent_budget
from weavegen.kernel.replay import Start
from weavegen.kernel.settings import Settings
from weavegen.kernel.steps import (
    Candidate,
    Evaluated,
    Execute,
    Executed,
    Failure,
    Retrieve,
    Score,
    SubagentState,
    View,
    Writes,
)
from weavegen.sandbox.environment import Environment
from weavegen.store.traces import LockedTrace
from weavegen.trace.blocks import BlockType

FAILED = Executed(error=FAILURE, subagents=(MAIN,))
ALL = [T.TASK_REMINDER, T.OBSERVATION, T.ORIENTATION, T.ACTION, T.EXPECTATION, T.OPTION]
ALL += [T.OBSERVATION_INFERENCE, T.EVALUATION, T.OUTCOME]
BROKEN = Candidate(text="def action_go(self:", finish_reason="stop", tokens=9)


def test_the_stages_of_a_tick_in_order() -> None:
    """Reminder, observations, orientation, action, expectation, option, views, evaluation, outcome."""
    assert types(tick(views=[View(title="Desk")], option=20.0)) == ALL


# --------------------------------------------------------------- stages 1 and 2: reminder and views


def test_the_task_reminder_is_the_problem_map_of_all_subagents_nested_by_parent() -> None:
    """Stage 1: name, description, results of the task's evaluations, schema, completed or not, children inside.

    In weavegen the reminder shows the time budget. The remaining time is in the block's header, so that equal seeds
    give equal bodies.
    """
    done = Evaluated(title="Is it counted?", scope="task", value=True)
    broken = Evaluated(title="Is it sorted?", scope="task", error=FAILURE)
    child = SubagentState(
        name="clerk",
        parent="main",
        description="Count.",
        schema={"n": "integer"},
        time_budget=12.5,
        completed=True,
        returned={"n": 3},
        evaluations=(done, broken),
    )
    assert problem_map([MAIN, child]).splitlines() == [
        "Problem map:",
        "- main: in progress, time budget 360 minutes",
        "    Find the key.",
        "  returns: {}",
        "  - clerk: completed, time budget 12.5 minutes",
        "      Count.",
        '    returns: {"n":"integer"}',
        "    Is it counted? True",
        "    Is it sorted? ERROR",
        '    returned: {"n":3}',
    ]
    reminder = tick(subagents=[MAIN, child]).blocks[0]
    assert (reminder.type, reminder.body) == (T.TASK_REMINDER, problem_map([MAIN, child]))
    assert reminder.time_remaining == 22600.0 - 1000.0


def test_every_observation_view_is_a_block_and_a_failing_view_an_error() -> None:
    """Stage 2: one observation for each view, in order. A view that raises is an error block with its traceback."""
    trace = tick(views=[View(title="Desk", text="a lamp"), View(title="Door", error=FAILURE), View(title="Sky")])
    assert types(trace)[1:5] == [T.OBSERVATION, T.ERROR, T.OBSERVATION, T.ORIENTATION]
    assert (trace.blocks[1].title, trace.blocks[1].body) == ("Desk", "a lamp")
    assert trace.blocks[2].body == FAILURE.traceback


# ------------------------------------------------------------------------ stage 3: orientation


def test_an_orientation_always_takes_the_retrieval_round() -> None:
    """Stage 3: an orientation begins with the round that retrieves. Other block types then do not retrieve."""
    trace = tick(odds=lambda step, at: 9.0)
    assert [step.round for step in samples(trace, T.ORIENTATION)] == [1]
    assert len(steps(trace, Retrieve)) == 1
    assert [step.round for step in samples(trace, T.ACTION)] == [0]


# ----------------------------------------------------------------------------- stage 4: action


@pytest.mark.parametrize("type", [T.ACTION, T.EVALUATION])
def test_at_most_three_attempts(type: BlockType) -> None:
    """Stages 4 and 7: an action or evaluation that never succeeds is tried three times.

    weavegen writes no debug block after the last attempt, because no attempt follows.
    """
    trace = tick(text=writes(type, BROKEN))
    attempt = [type, T.ERROR, T.DEBUG]
    at = types(trace).index(type)
    assert types(trace)[at : at + 8] == (attempt * 3)[:8]
    assert types(trace).count(type) == 3
    after = types(trace)[at + 8 :]
    assert after == [T.OUTCOME] if type is T.EVALUATION else after[0] is T.EXPECTATION


def test_without_an_action_the_tick_still_expects_and_evaluates() -> None:
    """Stage 4: after three failures the tick goes on. Its outcome says that no action ran; what holds is rewarded."""
    holds = Evaluated(title="Is it?", scope="task", value=True)
    trace = tick(text=writes(T.ACTION, BROKEN), evaluations=[holds])
    assert [type for type in types(trace) if type in (T.EXPECTATION, T.EVALUATION)] == [T.EXPECTATION, T.EVALUATION]
    assert "none ran in this tick" in trace.blocks[-1].body
    [given] = trace.rewards
    assert given.reward == pytest.approx(0.5 - 3 * 0.1)


@pytest.mark.parametrize(("score", "taken_back"), [(0.09, True), (0.11, False)])
def test_an_action_that_scores_below_a_tenth_is_taken_back_once_a_tick(score: float, taken_back: bool) -> None:
    """Stage 4: a score under 0.1 leads to one backtrack block a tick and a new attempt, which then runs."""
    trace = tick(odds=odds_for(T.ACTION, score))
    acting = [type for type in types(trace) if type in (T.ACTION, T.BACKTRACK)]
    assert acting == ([T.ACTION, T.BACKTRACK, T.ACTION] if taken_back else [T.ACTION])
    ran = [block.ran for block in trace.blocks if block.type is T.ACTION]
    assert ran == ([None, True] if taken_back else [True])
    assert sum(step.type is T.ACTION for step in steps(trace, Execute)) == 1


def test_the_text_that_is_executed_and_scored_is_the_text_that_is_recorded() -> None:
    text = 'def action_style(self):\n    return """\n#title { color: red }\n"""\nself.add_action("Style", action_style)'
    trace = tick(text=writes(T.ACTION, text))
    [body] = [block.body for block in trace.blocks if block.type is T.ACTION]
    assert "\n# title {" in body
    assert [step.source for step in steps(trace, Execute) if step.type is T.ACTION] == [body]
    assert [step.texts for step in steps(trace, Score) if step.texts and step.prompt.type is T.ACTION] == [(body,)]


def test_an_evaluation_is_never_taken_back() -> None:
    """Stage 4: only actions are taken back."""
    assert T.BACKTRACK not in types(tick(odds=odds_for(T.EVALUATION, -5.0)))


@pytest.mark.parametrize("type", [T.ACTION, T.EVALUATION])
def test_an_exception_becomes_an_error_block_then_a_debug_block_then_another_attempt(type: BlockType) -> None:
    """Stages 4 and 7: the error block holds the traceback."""
    good = Executed(subagents=(MAIN,))
    trace = tick(runs=[FAILED] if type is T.ACTION else [good, FAILED])
    at = types(trace).index(type)
    assert types(trace)[at : at + 4] == [type, T.ERROR, T.DEBUG, type]
    assert trace.blocks[at + 1].body == FAILURE.traceback
    assert [block.ran for block in trace.blocks if block.type is type] == [False, True]


# --------------------------------------------------------- stages 4, 7 and 8 in a live process

ACTION = "def action_count(self):\n    seen.append('callback')\n    return len(seen)\n"
REGISTRATION = "seen.append('registration')\nself.add_action('Count', action_count)\n"


def test_an_action_is_registered_and_then_its_callback_runs(environment: Environment) -> None:
    """Stage 4: the block runs `self.add_action(title, callback)`, then the callback runs."""
    done = execute(environment, "run", "seen = []\n" + ACTION + REGISTRATION, T.ACTION)
    assert (done.registered, done.value) == (("Count",), 2)
    assert execute(environment, "run", ACTION + "1 / 0\n" + REGISTRATION, T.ACTION).value is None


@pytest.mark.parametrize(("where", "stage"), [("registration", "register"), ("callback", "callback")])
def test_an_exception_in_registration_or_callback_gives_its_traceback(
    environment: Environment, where: str, stage: str
) -> None:
    """Stage 4: either exception is an error of the block, with the traceback that the error block shows."""
    raising = {
        "registration": ACTION + "1 / 0\n" + REGISTRATION,
        "callback": ACTION.replace("seen.", "1 / 0 or ") + REGISTRATION,
    }
    execute(environment, "run", "seen = []")
    failed = execute(environment, "run", raising[where], T.ACTION)
    assert failed.error is not None
    assert (failed.error.stage, failed.error.type) == (stage, "ZeroDivisionError")
    assert failed.error.traceback.startswith("Traceback")


def test_evaluations_run_and_results_that_are_not_json_are_given_by_their_repr(environment: Environment) -> None:
    """Stages 7 and 8: the evaluations registered by `self.add_evaluation` and those of the task. JSON values stay."""
    execute(environment, "begin")
    source = (
        "def json(self):\n    return {'a': [1, None]}\n"
        "def odd(self):\n    return {1, 2}\n"
        "def bad(self):\n    raise KeyError('key')\n"
        "self.task.add_evaluation('Is it bound by the bootstrap?', json)\n"
        "self.add_evaluation('Is it odd?', odd)\nself.add_evaluation('Is it bad?', bad)\n"
    )
    assert execute(environment, "run", source, T.EVALUATION).error is None
    checked = execute(environment, "evaluate").evaluations
    assert [(evaluation.scope, evaluation.value) for evaluation in checked] == [
        ("task", {"a": [1, None]}),
        ("tick", "{1, 2}"),
        ("tick", None),
    ]
    assert checked[2].error is not None
    execute(environment, "begin")
    assert [evaluation.scope for evaluation in execute(environment, "evaluate").evaluations] == ["task"]


# ---------------------------------------------------------- stages 5 and 6: expectation and option


def test_equal_questions_about_a_block_that_an_action_has_written_are_asked_once() -> None:
    asked = Writes(type="debug", questions=("Is it short?", "Is it  short?", "Is it true?"))
    trace = tick(runs=[Executed(writes=asked, subagents=(MAIN,))])
    [sampled] = [at for at, entry in enumerate(trace.journal) if entry.step in samples(trace, T.DEBUG)]
    [scored] = [step for step in steps(trace, Score) if step.sample == sampled]
    assert scored.questions == ("Is it short?", "Is it true?")


def test_an_expectation_follows_the_action_that_ran() -> None:
    """Stage 5: before the evaluation the model writes which evidence would show that the action worked."""
    after = types(tick())[types(tick()).index(T.ACTION) + 1]
    assert after is T.EXPECTATION


def test_the_option_is_a_question_whose_answer_is_drawn() -> None:
    """Stage 6: should the views change? At 70% seven of ten options say yes, and only these lead to new views."""
    answers = []
    for seed in range(60):
        trace = tick(s={"rounds": [1]}, seed=seed, option=0.8473)
        [option] = [block for block in trace.blocks if block.type is T.OPTION]
        assert option.label is not None
        assert "observation views" in option.label.question
        assert option.label.question.endswith("?")
        assert (T.OBSERVATION_INFERENCE in types(trace)) is option.label.answer
        answers.append(option.label.answer)
    assert 34 <= sum(answers) <= 50
    [asked] = [step for step in steps(tick(), Score) if step.sample is None]
    assert asked.texts == ("",)


def test_an_observation_inference_block_is_executed() -> None:
    """Stage 6: its label says whether it ran, as for an action. If it raises, an error block follows."""
    trace = tick(option=20.0, runs=[Executed(subagents=(MAIN,)), FAILED])
    at = types(trace).index(T.OBSERVATION_INFERENCE)
    assert trace.blocks[at].ran is False
    assert types(trace)[at + 1 : at + 3] == [T.ERROR, T.EVALUATION]
    assert T.OBSERVATION_INFERENCE in [step.type for step in steps(trace, Execute)]


# -------------------------------------------------------------------- stages 8 and 9: the outcome


def test_a_failing_evaluation_reads_error_and_adds_an_error_block() -> None:
    """Stage 8: before the outcome there is one error block for each evaluation that raised."""
    failure = Failure(type="OSError", message="gone", traceback="Traceback ...\nOSError: gone", stage="evaluation")
    trace = tick(evaluations=[Evaluated(title="Is it there?", scope="tick", error=failure)])
    assert types(trace)[-2:] == [T.ERROR, T.OUTCOME]
    assert trace.blocks[-2].body == failure.traceback
    assert "Is it there? | ERROR" in trace.blocks[-1].body


def test_the_outcome_is_a_table_of_titles_and_results_and_the_tick_is_rewarded() -> None:
    """Stage 9: the action comes first, then every evaluation. The tick is rewarded with the outcome."""
    evaluations = [
        Evaluated(title="Is it found?", scope="task", value=True),
        Evaluated(title="Is it gone?", scope="tick", value="{1, 2}"),
    ]
    went = Executed(registered=("Go",), value=[1, 2], subagents=(MAIN,))
    trace = tick(runs=[went], evaluations=evaluations)
    assert trace.blocks[-1].body.splitlines()[1:] == [
        "action | Go | [1,2]",
        "task evaluation | Is it found? | True",
        "tick evaluation | Is it gone? | {1, 2}",
    ]
    [reward] = trace.rewards
    assert reward.reward == pytest.approx(0.5 * 1 / 2 - 0.1)


# ----------------------------------------------------------------------------- the end of a run


def test_a_run_ends_when_the_agent_returns_to_its_caller() -> None:
    """The run ends with the returned value. Until then another tick follows."""
    assert tick().ended.ended.done is False  # type: ignore[union-attr]
    completed = msgspec.structs.replace(MAIN, completed=True, returned={"key": "found"})
    ended = tick(subagents=[completed]).ended
    assert ended is not None
    assert ended.ended is not None
    assert (ended.ended.done, ended.ended.returned) == (True, {"key": "found"})


def test_the_default_time_budget_is_360_minutes() -> None:
    """It applies if the job sets no other."""
    assert Settings().time_budget == 360


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        ({"ticks": 5}, "ticks"),
        ({"blocks": 70}, "blocks"),
        ({"until_bytes": 9000}, "bytes"),
        ({"sampled_tokens": 800}, "tokens"),
        ({"time_budget": 1}, "time"),
    ],
)
def test_a_run_ends_when_a_budget_is_spent(budget: dict[str, Any], spent: str) -> None:
    """The budget is the time in minutes, or one that weavegen adds: ticks, blocks, bytes, tokens."""
    trace = LockedTrace(1, "running", ticks=5, blocks=70, bytes=9000, written=9, sampled_tokens=800)
    s = Settings(**budget)
    start = Start(trace_seed=1, tick=5, clock=0, deadline=60 * s.time_budget, blocks=9, last_type=None)
    assert spent_budget(trace, start, s, now=60.0) == spent
    less = replace(trace, ticks=4, blocks=69, bytes=8999, sampled_tokens=799)
    assert spent_budget(less, start, s, now=59.9) is None
