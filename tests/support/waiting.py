"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(holds: Callable[[], T], what: str = "it does not come about", *, seconds: float = 60) -> T:
    """What `holds` gives, once that is true. `what`: told where it is not true within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found
