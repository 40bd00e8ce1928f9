"""The parts of rescoring that need no database: rubrics, calibration figures, corrections."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from weavegen.agents.sampling import ScoredCandidate
from weavegen.errors import UsageError
from weavegen.evaluator.calibration import Pair, figures, fit, probability
from weavegen.evaluator.rubrics import KNOWN, parse
from weavegen.kernel import prompts
from weavegen.kernel.rubric import Question
from weavegen.kernel.selection import mean_score
from weavegen.kernel.settings import settings
from weavegen.kernel.steps import Candidate, Penalties, Verdict, YesNo
from weavegen.store import views

ROOT = Path(__file__).parents[2]


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def pairs(*given: tuple[float, int, int]) -> list[Pair]:
    """(probability, number of labels, number of true labels); each label is a trace of its own."""
    answers = [(p, number < true) for p, labels, true in given for number in range(labels)]
    return [Pair(logit(p), answer, group) for group, (p, answer) in enumerate(answers)]


# ------------------------------------------------------------------------------------------------------ figures


def test_figures_equal_those_computed_by_hand() -> None:
    """Four labels: 0.9 true, 0.9 false, 0.3 false, 0.2 false."""
    result = figures("Is it?", "ran", pairs((0.9, 2, 1), (0.3, 1, 0), (0.2, 1, 0)))
    assert (result.labels, result.positives, result.few) == (4, 1, True)
    assert result.predicted == pytest.approx((0.9 + 0.9 + 0.3 + 0.2) / 4)
    assert result.brier == pytest.approx((0.01 + 0.81 + 0.09 + 0.04) / 4)
    assert result.log_loss == pytest.approx(-(math.log(0.9) + math.log(0.1) + math.log(0.7) + math.log(0.8)) / 4)
    assert result.auc == pytest.approx(
        (0.5 + 1 + 1) / 3
    )  # share of (true, false) pairs in the right order; a tie counts 1/2
    assert result.calibration_error == pytest.approx((2 * 0.4 + 0.3 + 0.2) / 4)
    filled = {round(bin.low, 1): (bin.labels, bin.predicted, bin.true) for bin in result.bins if bin.labels}
    assert filled == {
        0.2: (1, pytest.approx(0.2), 0.0),
        0.3: (1, pytest.approx(0.3), 0.0),
        0.9: (2, pytest.approx(0.9), 0.5),
    }


def test_labels_of_one_side_have_no_auc_and_certain_answers_a_finite_loss() -> None:
    result = figures("Is it?", "ran", [Pair(50.0, False, 1), Pair(-50.0, False, 1)])
    assert result.auc is None
    assert result.log_loss == pytest.approx(-math.log(1e-9) / 2, rel=1e-3)
    assert [bin.labels for bin in result.bins] == [1, *[0] * 8, 1]


def test_enough_labels_of_both_sides_are_not_reported_as_few() -> None:
    assert not figures("Is it?", "ran", pairs((0.5, 100, 50))).few
    assert figures("Is it?", "ran", pairs((0.5, 100, 9))).few


# -------------------------------------------------------------------------------------------------- corrections


def test_a_correction_undoes_a_known_distortion() -> None:
    """Of the answers at 0.9 half are true, at 0.1 a tenth: the line through (2.197, 0) and (-2.197, -2.197)."""
    correction = fit("Is it?", pairs((0.9, 1000, 500), (0.1, 1000, 100)))
    assert correction.slope == pytest.approx(0.5, abs=0.01)
    assert correction.intercept == pytest.approx(logit(0.1) / 2, abs=0.02)
    assert (correction.labels, correction.positives) == (2000, 600)
    assert correction.brier_before == pytest.approx((500 * 0.01 + 500 * 0.81 + 100 * 0.81 + 900 * 0.01) / 2000)
    assert correction.brier_after == pytest.approx((0.25 + 0.09) / 2, abs=0.002)


def test_a_correction_is_deterministic_and_finite_for_perfectly_separated_labels() -> None:
    labels = pairs((0.9, 30, 30), (0.1, 30, 0))
    correction = fit("Is it?", labels)
    assert correction == fit("Is it?", labels)
    assert 1 < correction.slope < 10
    one_trace = [Pair(pair.score, pair.answer, 1) for pair in labels]
    assert fit("Is it?", one_trace).slope == correction.slope


@pytest.mark.parametrize("true", [0, 19, 81, 100])
def test_too_few_labels_of_a_side_are_refused(true: int) -> None:
    with pytest.raises(UsageError, match=f"{true} true and {100 - true} false answers: a correction takes 20"):
        fit("Is it?", pairs((0.5, 100, true)))


def test_selection_compares_corrected_log_odds() -> None:
    answers = [YesNo(yes=0.8, no=0.2), YesNo(yes=0.5, no=0.5), YesNo(yes=0.0, no=0.0)]
    assert mean_score(answers, ()) == mean_score(answers) == pytest.approx(math.log(4) / 2)
    assert mean_score(answers, ((0.5, -1.0), None, (2.0, 9.0))) == pytest.approx((math.log(4) / 2 - 1.0) / 2)
    assert mean_score(answers[2:], ((0.5, -1.0),)) is None
    assert mean_score([YesNo(yes=1.0, no=0.0)], ((-1.0, 0.0),)) == pytest.approx(math.log(1e-9))


def test_candidate_scores_are_corrected_and_penalties_are_not() -> None:
    verdict = Verdict(compiles=True, rewritten="a", penalties=Penalties(title=0.5))
    candidate = Candidate(text="a", finish_reason="stop", tokens=1)
    judged = ScoredCandidate((0, 0), candidate, verdict, [YesNo(yes=0.8, no=0.2)], 0, 1, False)
    assert judged.score == pytest.approx(math.log(4) - 0.5)
    corrected = replace(judged, corrections=((-2.0, 1.0),))
    assert corrected.score == pytest.approx(1.0 - 2 * math.log(4) - 0.5)
    assert corrected.promise == pytest.approx(1.0 - 2 * math.log(4))


def test_log_odds_convert_back_to_probabilities() -> None:
    for p in (0.001, 0.3, 0.5, 0.999):
        assert probability(logit(p)) == pytest.approx(p)
    assert probability(1e6) < 1
    assert probability(-1e6) > 0


def test_corrections_are_settings() -> None:
    assert settings({"corrections": {"Is it?": [0.5, -1]}}).corrections == {"Is it?": (0.5, -1.0)}
    for wrong in ([0.5], [0.5, "x"], [1001, 0], [0.5, 1, 2]):
        with pytest.raises(UsageError, match="settings"):
            settings({"corrections": {"Is it?": wrong}})


# ------------------------------------------------------------------------------------------------------ rubrics


def test_the_example_rubric() -> None:
    rubric = parse((ROOT / "docs" / "rubric.toml").read_text())
    assert "action" in rubric.types
    assert "option" not in rubric.types
    assert rubric.about("action") == (
        Question("Would a careful engineer be glad to find this block in a trace?"),
        Question("Does this block run without errors?", "ran"),
    )
    assert rubric.about("debug") == rubric.about("action")[:1]
    assert rubric.asked("Is it?").endswith("a success? No. (90%)\n#q: Is it?")


def test_fields_of_a_rubric() -> None:
    rubric = parse('assertions = true\n[questions]\naction = ["Is it?", "Will this evaluation come out true?"]')
    assert rubric.types == ["action"]
    assert rubric.about("action")[1].truth == "evaluation"
    assert rubric.asked("Is it?") == "Is it?"
    other = parse('assertions = true\n[questions]\naction = ["Is it?"]')
    assert rubric.version != other.version
    assert parse('[questions]\nall = ["A?", "B?"]\naction = ["B?", "C?"]').about("action") == (
        Question("A?"), Question("B?"), Question("C?"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[questions\n", "r.toml is not valid TOML: .*line 1"),
        ("", "r.toml has no questions"),
        ("[questions]\naction = []\n", "has no questions"),
        ("\nquestion = 1", "line 2: there is no key 'question': a rubric has questions, calibration, assertions"),
        ("questions = 1", "line 1: questions must be a table"),
        ("[questions]\n\nacton = ['Is it?']", "line 3: there is no block type 'acton': choose one of all, action,"),
        ("[questions]\ngenesis = ['Is it?']", "line 2: the model writes no blocks of type 'genesis'"),
        ("[questions]\naction = 'Is it?'", "line 2: action must be a list"),
        ("[questions]\naction = [\n 'A?',\n 'It is.']", "line 4: 'It is.' is not a question"),
        ("[questions]\naction = ['A?',\n 'A?']", "line 3: 'A\\?' is asked twice"),
        ("[questions]\naction = ['A?', 3]", "line 2: action: a question is a text, or"),
        ("[questions]\naction = [{ask = 'A?', truth = 'won'}]", "line 2: there is no truth 'won'"),
        ("[questions]\nall = ['A?']\n[[calibration]]\nquestion = 'B?'", "line 3: a calibration example has"),
        (
            "[questions]\nall = ['A?']\n[[calibration]]\nquestion = 'B?'\nanswer = true\nprobability = 3",
            "line 4: probability must be",
        ),
        (f"[questions]\nall = ['{'x' * 1000}?']", "line 2: a question has 1001 characters"),
    ],
)
def test_errors_of_a_rubric_name_the_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(text, "r.toml")


def test_grounded_questions_are_those_of_the_rubric_and_of_the_view() -> None:
    own = tomllib.loads((Path(prompts.__file__).parent / "rubric.toml").read_text())["questions"]
    asked = {question for questions in own.values() for question in questions}
    assert len(KNOWN.keys() & asked) == 2
    for question in KNOWN:
        assert f"'{question}'" in views.text("calibration_pairs")
        assert f"'{question}'" in views.text("annotated_candidates")
