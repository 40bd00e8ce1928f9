"""Waiting for other threads and processes."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(holds: Callable[[], T], what: str = "the condition did not become true", *, seconds: float = 60) -> T:
    """Wait until `holds()` is true, and return its value. Fails with the message `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return value
