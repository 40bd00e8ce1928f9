"""The bar of `python -m bench preferences`: only a change for the better that chance does not explain meets it."""

import pytest

from bench.preferences import gains


@pytest.mark.parametrize(
    ("better", "worse", "met"), [(0, 0, False), (1, 0, False), (3, 3, False), (10, 9, False), (5, 0, True)]
)
def test_no_change_and_noise_do_not_meet_the_bar(better: int, worse: int, met: bool) -> None:
    before = [False] * better + [True] * worse + [True, False] * 3
    after = [True] * better + [False] * worse + [True, False] * 3
    gain, bar = gains(before, after)
    assert gain.value == pytest.approx(100 * (better - worse) / len(before))
    assert (gain.met, bar.met) == (None, met)
