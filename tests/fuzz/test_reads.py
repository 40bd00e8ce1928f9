"""A megabyte of every kind of nonsense: nothing dies, hangs or takes time that grows like its square."""

import pytest

from tests.fuzz.reads import OF_BLOCKS, READERS, in_a_process


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader not in OF_BLOCKS])
def test_no_text_is_too_long(reader: str) -> None:
    in_a_process(reader)
