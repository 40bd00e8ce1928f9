"""Candidates of a megabyte, and nested to any depth: no linting process dies, hangs or takes all memory."""

import pytest

from tests.fuzz.reads import OF_BLOCKS, in_a_process


@pytest.mark.parametrize("reader", OF_BLOCKS)
def test_no_candidate_is_too_long_or_too_deep(reader: str) -> None:
    in_a_process(reader)
