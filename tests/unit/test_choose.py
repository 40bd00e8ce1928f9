"""The pure decisions: scores, draws, acceptance, windows, rewards, settings."""

import math
from collections import Counter

import pytest

from tests.support.policies import compose
from weavegen.agents.sampling import ScoredCandidate
from weavegen.agents.tables import outcome_table, problem_map
from weavegen.agents.write_block import good_enough
from weavegen.errors import UsageError
from weavegen.kernel.context import PINNED, question_suffix, window
from weavegen.kernel.replay import draw_label
from weavegen.kernel.seeds import derive_seed
from weavegen.kernel.selection import draw, log_odds, mean_score, penalised, probability
from weavegen.kernel.settings import Settings, settings
from weavegen.kernel.steps import (
    Candidate,
    Evaluated,
    Executed,
    Failure,
    Penalties,
    Prompt,
    SubagentState,
    Verdict,
    YesNo,
)
from weavegen.trace.blocks import Block, BlockType

FAILURE = Failure(type="ValueError", message="no", traceback="...", stage="evaluation")


def test_a_score_is_ln_yes_minus_ln_no() -> None:
    assert log_odds(YesNo(yes=0.6, no=0.3)) == pytest.approx(math.log(2))
    assert log_odds(YesNo(yes=0.0, no=0.0)) is None
    assert log_odds(YesNo(yes=0.5, no=0.0)) == pytest.approx(math.log(0.5) - math.log(1e-9))


def test_the_score_of_several_questions_is_their_mean_without_undefined_ones() -> None:
    answers = [YesNo(yes=0.6, no=0.3), YesNo(yes=0.3, no=0.6), YesNo(yes=0, no=0), YesNo(yes=0.8, no=0.1)]
    assert mean_score(answers) == pytest.approx(math.log(8) / 3)
    assert mean_score([YesNo(yes=0, no=0)]) is None


def test_a_candidate_without_a_score_is_never_preferred_to_one_with_a_score() -> None:
    worst = penalised(-21.0, Penalties(syntax=2.0, shape=9.0))
    scores = [penalised(None, Penalties()), worst, penalised(None, Penalties(shape=1.0))]
    assert {draw(scores, derive_seed(number)) for number in range(1000)} == {1}
    assert not good_enough([candidate(YesNo(yes=0.0, no=0.0), compiles=True)], -50.0)
    assert draw(scores[::2], 1) in (0, 1), "softmax stays defined without any score"


def test_without_mass_there_is_no_probability_and_no_label() -> None:
    assert probability(YesNo(yes=0.6, no=0.2)) == pytest.approx(0.75)
    assert probability(YesNo(yes=0.0, no=0.0)) is None
    assert draw_label("Is it?", probability(YesNo(yes=0.0, no=0.0)), 1) is None


def test_draws_follow_softmax() -> None:
    counts = Counter(draw([0.0, math.log(3)], derive_seed(number)) for number in range(4000))
    assert 2850 < counts[1] < 3150
    assert draw([1e4, 0.0], 1) == 0


def test_a_round_is_accepted_if_its_best_candidate_compiles_and_scores_enough() -> None:
    low, high = YesNo(yes=0.5, no=0.3), YesNo(yes=0.6, no=0.2)
    assert good_enough([candidate(low, compiles=True), candidate(high, compiles=True)], math.log(3) - 1e-9)
    assert not good_enough([candidate(low, compiles=True), candidate(high, compiles=True)], math.log(3) + 1e-9)
    assert not good_enough([candidate(low, compiles=True), candidate(high, compiles=False)], 0.1)


def candidate(answer: YesNo, *, compiles: bool) -> ScoredCandidate:
    """A whole candidate without penalties."""
    verdict = Verdict(compiles=compiles, rewritten="", penalties=Penalties())
    text = Candidate(text="", finish_reason="stop", tokens=1)
    return ScoredCandidate((0, 0), text, verdict, [answer], depth=0, tokens=1, unfinished=False)


def test_the_window_drops_blocks_in_chunks() -> None:
    s = Settings()
    assert window(1, s) == (PINNED, PINNED)
    assert window(PINNED + 60, s) == (PINNED, PINNED + 60)
    seen = {count: window(count, s) for count in range(PINNED, 400)}
    assert all(end - first <= 60 and end == count for count, (first, end) in seen.items())
    assert all(end - first >= 40 for count, (first, end) in seen.items() if count >= PINNED + 60)
    starts = [first for first, _ in seen.values()]
    assert len(set(starts)) < len(starts) / 15


def test_scoring_prompts_extend_sampling_prompts_in_the_form_of_the_trace() -> None:
    prompt = Prompt(type=BlockType.ACTION, window=(2, 3), header="#startblock type: action\n", prefix="def action_")
    text = compose(prompt, ["genesis\n", "bootstrap\n"], ["outcome\n"], [])
    assert text.startswith("<s> [INST] genesis\nbootstrap\noutcome\n")
    assert text.endswith(" [/INST]\n#startblock type: action\n")
    suffix = question_suffix("def action_a(): ...\n\n", "Is it good?")
    assert suffix.startswith("def action_a(): ...\n#q: ")
    assert suffix.endswith("#q: Is it good? ")


def test_retrieved_blocks_are_commented_out_and_numbered() -> None:
    prompt = Prompt(type=BlockType.ACTION, window=(2, 2), header="")
    recalled = [(BlockType.ACTION, "#startblock type: action\nx = 1\n#endblock\n\n")]
    text = compose(prompt, [], [], recalled)
    assert "# Retrieved block 1:\n# #startblock type: recalled-action\n# x = 1\n# #endblock\n" in text
    assert text.index("START RETRIEVED BLOCKS") < text.index("END RETRIEVED BLOCKS")


def block(index: int, type: BlockType) -> Block:
    return Block(type=type, body="", index=index, timestamp=0.0, time_remaining=0.0)


def test_the_outcome_names_every_result() -> None:
    evaluations = [
        Evaluated(title="Is it?", scope="task", value=False),
        Evaluated(title="Did it?", scope="tick", error=FAILURE),
        Evaluated(title="What?", scope="tick", value={"a": [1]}),
    ]
    table = outcome_table(Executed(registered=("Go", "View"), value=None), evaluations)
    assert table.splitlines()[1:] == [
        "action | Go | null",
        "task evaluation | Is it? | False",
        "tick evaluation | Did it? | ERROR",
        'tick evaluation | What? | {"a":[1]}',
    ]
    assert "ERROR" in outcome_table(None, [])


def test_the_problem_map_is_nested() -> None:
    def state(name: str, parent: str | None, completed: bool = False) -> SubagentState:
        return SubagentState(
            name=name, parent=parent, description=f"do {name}", schema={}, time_budget=5.0, completed=completed
        )

    text = problem_map([state("main", None), state("child", "main", completed=True)])
    assert text.index("- main: in progress") < text.index("  - child: completed")


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": []}, {"rounds": [0]}, {"window": 40}, {"ticks": -1}, {"attempts": 0}, {"speed": 1}, {"accept": "high"}],
)
def test_settings_out_of_range_are_refused_with_their_name(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        settings(wrong)
