"""Python's parser in threads."""

import gc
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from weavegen.python_parser import parse


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Garbage collections are frequent, and let other threads run."""

    def pause(*_: object) -> None:
        time.sleep(1e-4)

    threshold = gc.get_threshold()
    gc.set_threshold(5)
    gc.callbacks.append(pause)
    yield
    gc.callbacks.remove(pause)
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("interrupted")
def test_threads_do_not_disturb_each_other() -> None:
    def parse_at(depth: int) -> int:
        return parse_at(depth - 1) if depth else len(parse("x = [1, (2, 3), {4: 5}]\n" * 10).body)

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(parse_at, [*range(0, 80, 5)] * 10)) == {10}


def test_there_are_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(r"x = '\d' is 1")
