"""The containers that the tests of this folder share. They are removed at the end."""

from collections.abc import Iterator

import pytest

from tests.image.podman import Stack


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """All services of deploy/compose.yaml, running."""
    started = Stack()
    started.down()  # what an interrupted run has left
    try:
        started.up()
        yield started
    finally:
        started.down()
