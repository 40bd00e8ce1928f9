"""Bad input of every kind that weavegen reads: from models, from people, through the environment's socket.

What is wrong is refused with an error that is documented, nothing hangs, no process dies, and a megabyte takes
four times as long as a quarter of one, not sixteen times.

As it is, all examples are the same in every run, so that nothing flakes. For a longer search with new ones:

    WEAVEGEN_FUZZ=50 .venv/bin/python -m pytest tests/fuzz        50 times as many examples, drawn at random,
                                                                  and every block type reads every long text

What it finds belongs as an `@example` beside the test, or into `inputs.py`.
"""

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("WEAVEGEN_FUZZ", "1"))


def fuzz(examples: int) -> settings:
    """How a test is run: with so many examples, or the multiple that the environment asks for."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
