"""A short run of the chaos suite. `make chaos` runs the long one."""

from tests.chaos.run import chaos


def test_traces_written_during_faults_are_complete() -> None:
    assert chaos(seed=1, minutes=0.7, traces=12) == 0
