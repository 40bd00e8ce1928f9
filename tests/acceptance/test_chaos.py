"""Short runs of the chaos suite. `make chaos` runs the long ones."""

import pytest

from tests.chaos.run import chaos


@pytest.mark.parametrize("search", ["cascade", "execute"])
def test_traces_written_during_faults_are_complete(search: str) -> None:
    assert chaos(seed=1, minutes=0.7, traces=12, search=search) == 0
