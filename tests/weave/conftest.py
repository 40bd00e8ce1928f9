"""A real environment, for facts that only a live process can show."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.script import GOOD, T, execute
from weavegen import config as configuration
from weavegen.sandbox.environment import Environment


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    """An environment whose bootstrap only defines `go`."""
    with tempfile.TemporaryDirectory(prefix="weavegen-test-") as home:
        Path(home).chmod(0o711)
        started = Environment.start(configuration.load({"WEAVEGEN_HOME": home}), 1)
        try:
            assert execute(started, "bootstrap", "def go():\n    return True\n" + GOOD[T.ACTION]).error is None
            yield started
        finally:
            started.stop(keep_workspace=False)
