"""What the evaluator is asked, how its answer is read, and how the score is computed."""

import math
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.support.policies import compose
from tests.support.recording_server import Server
from tests.support.script import GOOD, T, drafts, execute, samples, steps, tick
from weavegen.box import weave
from weavegen.evaluator.rubrics import WILL_RUN
from weavegen.kernel import prompts
from weavegen.kernel.context import question_suffix
from weavegen.kernel.selection import draw, log_odds, mean_score, penalised
from weavegen.kernel.steps import Penalties, Prompt, Score, YesNo
from weavegen.pool import yes_no
from weavegen.pool.client import ModelClient
from weavegen.sandbox.environment import Environment


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[ModelClient]:
    client = ModelClient(server.url, "EMPTY", None, timeout=20)
    yield client
    client.close()


# ------------------------------------------------------------------------------------- the question


def test_the_question_follows_the_text_that_the_candidate_continued() -> None:
    """The scoring prompt extends the sampling prompt by the candidate, so that the server's cache holds all but the
    candidate."""
    trace = tick()
    asked = [step for step in steps(trace, Score) if step.sample is not None]
    assert asked
    for step in asked:
        assert step.sample is not None
        sampled = trace.journal[step.sample].step
        assert sampled in samples(trace, step.prompt.type)
        assert step.prompt == sampled.prompt
    prompt = Prompt(type=T.ACTION, window=(2, 2), header="#startblock type: action\n", prefix="def action_")
    sampling = compose(prompt, ["genesis\n"], [], [])
    body = "def action_go(self): ..."
    assert (sampling + question_suffix(body, "Is it?")).startswith(sampling + body + "\n")


def test_calibration_examples_come_first_and_then_the_question() -> None:
    """A few questions whose right probability is known come before `#q: QUESTION `, which the model continues."""
    assert question_suffix("x = 1\n\n", "Is it good?") == f"x = 1\n{prompts.calibration()}#q: Is it good? "


def test_calibration_examples_show_the_right_probability() -> None:
    """For example a fair coin and a one-in-a-hundred event, in the form of the trace's labels."""
    lines = prompts.calibration().splitlines()
    assert 3 <= len(lines) <= 9
    percentages = {}
    for line in lines:
        form = re.fullmatch(r"#q: (.+\?) (Yes|No)\. \(([\d.]+)%\)", line)
        assert form, line
        percent = float(form[3])
        percentages[form[1]] = percent if form[2] == "Yes" else 100 - percent
    assert next(yes for question, yes in percentages.items() if "coin" in question) == 50
    assert next(yes for question, yes in percentages.items() if "1 to 100" in question) == 1
    assert next(yes for question, yes in percentages.items() if "four or less" in question) == pytest.approx(
        200 / 3, abs=0.01
    )
    assert next(yes for question, yes in percentages.items() if "hearts" in question) == 25


# --------------------------------------------------------------------------------------- the answer


@pytest.mark.parametrize(
    ("token", "means"),
    [
        ("yes", True), (" Yes", True), ('"YES', True), ("**yes", True), ("\n Yes!", True), ("3. yes", True),
        ("no", False), (" No.", False), ("(not", False), ("NONE", False),
        ("ye", None), ("maybe", None), ("know", None), ("42", None), ("", None),
    ],
)  # fmt: skip
def test_a_token_is_yes_or_no_by_its_beginning(token: str, means: bool | None) -> None:
    """Tokens are lower-cased and stripped of leading non-letters; "not" counts as no, as in weave-agent."""
    assert yes_no.side(token) is means


def test_a_side_sums_the_probabilities_of_its_tokens() -> None:
    """Every spelling of yes adds to P(yes), and every spelling of no to P(no)."""
    top = {"Yes": 0.3, " yes": 0.2, '"Yes': 0.1, "no": 0.1, " No": 0.05, "Perhaps": 0.2}
    mass = yes_no.from_top({token: math.log(p) for token, p in top.items()})
    assert [mass.yes, mass.no] == [pytest.approx(0.6), pytest.approx(0.15)]


def test_a_side_without_a_token_gets_the_remaining_mass() -> None:
    """The remaining mass is what no listed token has."""
    mass = yes_no.from_top({"Yes": math.log(0.7), "Perhaps": math.log(0.2)})
    assert [mass.yes, mass.no] == [pytest.approx(0.7), pytest.approx(0.1)]
    mass = yes_no.from_top({"No": math.log(0.6)})
    assert [mass.yes, mass.no] == [pytest.approx(0.4), pytest.approx(0.6)]


def test_one_token_is_sampled_with_the_logprobs_of_at_most_128_ids(server: Server, client: ModelClient) -> None:
    """`/v1/completions` with `logprobs`, `logprob_token_ids` and `max_tokens=1` gives the exact mass."""
    server.mass = {"Yes": 0.5, " yes": 0.125, "No": 0.25}
    [first, second] = client.yes_no(["Is it? ", "Was it? "])
    assert first == second
    assert [first.yes, first.no] == [pytest.approx(0.625), pytest.approx(0.25)]
    request = server.requests[-1]
    assert request["prompt"] == ["Is it? ", "Was it? "]
    assert request["max_tokens"] == 1
    assert request["logprobs"] >= 1
    assert 2 <= len(request["logprob_token_ids"]) <= 128


# ---------------------------------------------------------------------------------------- the score


@pytest.mark.parametrize(("yes", "no", "score"), [(0.5, 0.5, 0.0), (0.8, 0.1, 2.0794415), (0.1, 0.3, -1.0986123)])
def test_the_score_is_ln_yes_minus_ln_no(yes: float, no: float, score: float) -> None:
    """Ln P(yes) - ln P(no)."""
    assert log_odds(YesNo(yes=yes, no=no)) == pytest.approx(score)


def test_an_undefined_score_counts_less_than_any_other_in_selection() -> None:
    """The score is undefined if neither side has any mass. Such a candidate is not drawn if another has a score."""
    nothing, sure_no = YesNo(yes=0.0, no=0.0), YesNo(yes=0.0, no=1.0)
    assert log_odds(nothing) is None
    assert penalised(mean_score([nothing]), Penalties()) < penalised(mean_score([sure_no]), Penalties(shape=20.0))


def test_the_score_of_several_questions_is_their_mean() -> None:
    """A setting asks all questions of a type's rubric. By default only the first question is asked."""
    even, good = YesNo(yes=0.4, no=0.4), YesNo(yes=0.8, no=0.1)
    assert mean_score([even, good]) == pytest.approx(math.log(8) / 2)
    asked = {
        everything: {len(step.questions) for step in steps(tick(s={"all_questions": everything}), Score)}
        for everything in (False, True)
    }
    assert asked == {False: {1}, True: {1, 2}}
    [draft] = drafts(tick(s={"all_questions": True}, odds=lambda step, at: 2.0), T.ACTION)
    assert draft.score == pytest.approx(2.0)


def test_a_question_is_put_in_words_that_are_drawn_for_each_block() -> None:
    """All texts of a block are asked about in the same words. Corrections of the question hold for all of them."""
    wordings = prompts.wordings(WILL_RUN)
    assert len(set(wordings)) == 6
    assert {prompts.question_of(words) for words in wordings} == {WILL_RUN}

    def put(number: int, **s: Any) -> str:
        """In which words the question was put about the action of a tick."""
        trace = tick(number, {"all_questions": True, **s}, raw=-9.0)
        [words] = {step.questions[1] for step in steps(trace, Score) if step.prompt.type is T.ACTION}
        return words

    assert {put(number) for number in range(1, 40)} == set(wordings)
    assert [put(number) for number in range(1, 9)] == [put(number) for number in range(1, 9)]
    assert {put(number, wordings=1) for number in range(1, 9)} == {WILL_RUN}
    for correction, rounds in (([1.0, 0.0], 3), ([0.0, 9.0], 1)):
        for number in range(1, 9):
            s = {"all_questions": True, "corrections": {WILL_RUN: correction}}
            sampled = samples(tick(number, s, odds=lambda step, at: -1.0), T.ACTION)
            assert {step.round for step in sampled} == set(range(rounds))


def test_the_better_score_is_drawn_more_often() -> None:
    """Of the scores 0 and ln 3, the second is drawn with probability 3/4."""
    drawn = [draw([0.0, math.log(3)], seed) for seed in range(2000)]
    assert sum(drawn) / 2000 == pytest.approx(0.75, abs=0.03)


# ----------------------------------------------------------- the same evaluator inside a callback


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that a model received. It says yes with 0.8 to the parent question.

    Its answer to each other question depends on the parent's answer in the prompt.
    """
    prompts: list[str] = []

    def answer(batch: list[str]) -> list[tuple[float, float]]:
        prompts.extend(batch)
        masses = []
        for prompt in batch:
            question = prompt.splitlines()[-1]
            yes = 0.8 if "good" in question else 0.9 if "good? Yes." in prompt else 0.3
            masses.append((yes, 1 - yes))
        return masses

    monkeypatch.setattr(weave, "ask", answer)
    return prompts


def test_the_bayesian_score_is_the_posterior_of_the_parent_question(asked: list[str]) -> None:
    """Prior x likelihoods given yes, divided by (this + the same given no): 0.8 x 0.9^2 / (0.8 x 0.9^2 + 0.2 x
    0.3^2)."""
    [score] = weave.simple_bayes_evaluate_outputs("Is it good?", ["Is it short?", "Is it true?"], ["A tale"])
    assert score == pytest.approx(0.8 * 0.81 / (0.8 * 0.81 + 0.2 * 0.09))
    assert len(asked) == 5, "the parent once, and each question with the parent answered yes and no"
    assert [prompt.startswith("A tale\n") for prompt in asked] == [True] * 5
    assert [("#q: Is it good? Yes.\n" in prompt, "#q: Is it good? No.\n" in prompt) for prompt in asked] == [
        (False, False), (True, False), (True, False), (False, True), (False, True),
    ]  # fmt: skip


def test_callbacks_get_probabilities_for_one_question_and_for_several(asked: list[str]) -> None:
    """`simple_evaluate_outputs(score_prompt_fn(s), texts)` gives one value a text: for several questions from the
    mean log odds."""
    good, short = weave.make_simple_score_prompt("Is it good?"), weave.make_simple_score_prompt("Is it short?")
    assert weave.simple_evaluate_outputs(good, ["A tale", "A song"]) == pytest.approx([0.8, 0.8])
    odds = (math.log(0.8 / 0.2) + math.log(0.3 / 0.7)) / 2
    assert weave.simple_evaluate_outputs([good, short], "A tale") == pytest.approx([1 / (1 + math.exp(-odds))])
    assert good("A tale").startswith("A tale\n")
    assert good("A tale").endswith("#q: Is it good? ")


def test_prompt_functions_for_the_bayesian_score_take_the_parents_answer() -> None:
    """`make_simple_bayes_score_prompt(question)` makes a function of the parent's answer and a text."""
    prompt = weave.make_simple_bayes_score_prompt("Is it short?")("Is it good? No.", "A tale")
    assert prompt.startswith("A tale\n")
    assert prompt.endswith("#q: Is it good? No.\n#q: Is it short? ")


def test_a_custom_template_is_a_partial_of_template_suffix_and_prompt(asked: list[str]) -> None:
    """`make_score_prompt_vllm(template, suffix, prompt)`: the part that repeats the prompt is dropped from the text."""
    function = partial(weave.make_score_prompt_vllm, "{prompt}|{response}|", "Is it good? ", "Once ")
    weave.simple_evaluate_outputs(function, ["Once upon a time"])
    assert asked == ["Once |upon a time|Is it good? "]


def test_callbacks_find_the_evaluators_functions_in_scope_and_in_the_module_weave(environment: Environment) -> None:
    """The functions are there without an import, and templates can use `from weave import`."""
    source = (
        "def action_judge(self):\n"
        "    from weave import make_score_prompt_vllm\n"
        "    own = partial(make_score_prompt_vllm, '{response}', ' Is it good? ', '')\n"
        "    simple = make_simple_score_prompt('Is it good?')\n"
        "    bayes = simple_bayes_evaluate_outputs('Is it good?', ['Is it short?'], ['A tale'])\n"
        "    make_simple_bayes_score_prompt('Is it short?')\n"
        "    return [simple_evaluate_outputs(f, ['A tale']) for f in (own, simple)] + [bayes]\n"
        "self.add_action('Judge', action_judge)\n"
    )
    done = execute(environment, "run", source, T.ACTION, ask=lambda prompts: [(0.6, 0.2)] * len(prompts))
    assert done.error is None
    assert [round(score, 6) for [score] in done.value] == [0.75, 0.75, 0.75]


def test_the_first_question_of_a_type_is_the_question_of_its_label() -> None:
    """The trace shows the question by which the block was scored."""
    for type in GOOD:
        assert prompts.questions(type)[0].endswith("?")
    [action] = [block for block in tick().blocks if block.type is T.ACTION]
    assert action.label is not None
    assert action.label.question == prompts.questions(T.ACTION)[0]
