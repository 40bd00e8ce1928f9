"""Bad input of every kind that weavegen reads: from models, from people, through the environment's socket.

What is wrong is refused with an error that is documented, nothing hangs, no process dies, and a megabyte takes
four times as long as a quarter of one, not sixteen times.

By default, all examples are the same in every run, so that nothing flakes. For a longer search with new ones:

    WEAVEGEN_FUZZ=50 .venv/bin/python -m pytest tests/fuzz        50 times as many examples, drawn at random,
                                                                  and every block type reads every long text

Add what it finds as an `@example` to the test, or to `inputs.py`.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("WEAVEGEN_FUZZ", "1"))


def fuzz(examples: int) -> settings:
    """How a test is run: with this many examples, or the multiple that WEAVEGEN_FUZZ asks for."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
