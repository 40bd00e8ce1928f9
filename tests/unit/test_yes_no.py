import math

import pytest

from weavegen.kernel.steps import YesNo
from weavegen.pool import yes_no


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("Yes", True),
        (" yes", True),
        ('\n"YES', True),
        ("Yesterday", True),
        ("1. Yes", True),
        ("No", False),
        (" not", False),
        ("(Now", False),
        ("None", False),
        ("Ye", None),
        ("n", None),
        ("know", None),
        ("Maybe", None),
        ("", None),
        (" 12 ", None),
    ],
)
def test_side_of_a_token(token: str, expected: bool | None) -> None:
    assert yes_no.side(token) is expected


def test_mass_is_summed_over_spellings() -> None:
    top = {
        " Yes": math.log(0.4),
        "yes": math.log(0.1),
        " No": math.log(0.2),
        "not": math.log(0.05),
        "It": math.log(0.2),
    }
    mass = yes_no.from_top(top)
    assert mass.yes == pytest.approx(0.5)
    assert mass.no == pytest.approx(0.25)


def test_a_side_without_a_token_gets_the_remaining_mass() -> None:
    mass = yes_no.from_top({"Yes": math.log(0.7), "It": math.log(0.1)})
    assert mass.yes == pytest.approx(0.7)
    assert mass.no == pytest.approx(0.2)
    assert yes_no.from_top({"No": math.log(0.9)}).yes == pytest.approx(0.1)


def test_a_score_without_known_tokens_is_undefined() -> None:
    assert yes_no.from_top({"It": math.log(0.1)}) == YesNo(yes=0.0, no=0.0)
    assert yes_no.from_top({}) == YesNo(yes=0.0, no=0.0)


def test_a_token_of_probability_zero_counts_as_a_token() -> None:
    assert yes_no.from_top({"Yes": -9999.0, "No": math.log(0.6)}) == YesNo(yes=0.0, no=pytest.approx(0.6))


def test_rounding_never_brings_the_sum_above_one() -> None:
    mass = yes_no.from_top({"Yes": math.log(0.6) + 1e-6, "No": math.log(0.4) + 1e-6, "no": 0.0})
    assert mass.yes + mass.no <= 1.0 + 1e-12


def test_exact_mass_by_ids() -> None:
    top = {"token_id:5": math.log(0.6), "token_id:6": math.log(0.3), "token_id:9": math.log(0.05)}
    mass = yes_no.from_ids(top, {5: True, 6: False}, sampled=" It")
    assert mass is not None
    assert mass.yes == pytest.approx(0.6)
    assert mass.no == pytest.approx(0.3)


def test_the_sampled_token_counts_by_its_text() -> None:
    top = {"token_id:5": math.log(0.2), "token_id:6": math.log(0.1), "token_id:9": math.log(0.5)}
    mass = yes_no.from_ids(top, {5: True, 6: False}, sampled=" Nowhere")
    assert mass is not None
    assert mass.no == pytest.approx(0.6)


def test_a_server_that_ignores_the_ids_is_detected() -> None:
    assert yes_no.from_ids({"token_id:5": -0.1, "token_id:7": -3.0}, {5: True, 6: False}, sampled="Yes") is None
    assert yes_no.from_ids({" Yes": -0.1}, {5: True, 6: False}, sampled=" Yes") is None


def test_all_spellings_fit_in_one_request() -> None:
    variants = yes_no.variants()
    assert len(variants) == len(set(variants)) <= yes_no.MAX_IDS
    assert variants[:2] == ["Yes", "No"]
    assert all(yes_no.side(text) is not None for text in variants)
