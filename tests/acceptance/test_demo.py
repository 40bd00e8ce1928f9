"""`weavegen demo`: a small language model plays, and wins."""

from collections.abc import Iterator

import pytest

from tests.support.installation import Installation, installed


@pytest.fixture(scope="module")
def nano() -> Iterator[Installation]:
    with installed(WEAVEGEN_MODEL="nano") as started:
        yield started


@pytest.mark.timeout(600)
def test_weavegens_own_model_reads_the_board_and_wins(nano: Installation) -> None:
    done = nano.cli("demo", timeout=500)
    assert done.returncode == 0, done.stderr
    assert "weavegen-nano" in done.stdout
    assert "SIMULATED" not in done.stdout
    assert nano.sql("select model from jobs") == [("weavegen-nano",)]
    results = [result for [result] in nano.sql("select result from text_examples where ended_because = 'returned'")]
    assert len(results) == 8
    # The model wins five games of six; one that does not read the board won one of eight. Fewer than four wins have a
    # probability of 0.2%.
    assert results.count("won") >= 4, results
    [[blocks, ran]] = nano.sql("select count(*), avg(ran::int) from blocks where tick > 0 and ran is not null")
    assert blocks > 50
    assert ran > 0.9
