"""The chaos suite in short: `make chaos` is the long form."""

from tests.chaos.run import chaos


def test_what_is_written_while_everything_breaks_is_whole() -> None:
    assert chaos(seed=1, minutes=0.7, traces=12) == 0
