"""How far a job is, how fast it goes and when it will be over: for the terminal and the viewer."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from weavegen.store.models import JobState
from weavegen.store.reports import JobRow

T = TypeVar("T")


def seconds_left(row: JobRow) -> float | None:
    """An estimate: the rest takes as long as the part before did, pauses left out.

    None before anything is known, and where nothing goes on: the job is over, paused or draining.
    """
    worked = row.seconds - row.paused_seconds
    if not row.open or row.state != JobState.ACTIVE or not 0.01 <= row.progress < 1 or worked <= 0:
        return None
    return worked * (1 - row.progress) / row.progress


@dataclass
class Rates:
    """What jobs do a second, over the last moments. One for whoever looks."""

    window: float = 10.0
    """Seconds that a rate of now is the mean of."""
    seen: dict[int, deque[tuple[float, int, int]]] = field(default_factory=dict)
    """Of each job: when, blocks and sampled tokens then."""

    def now(self, moment: float, row: JobRow) -> tuple[float | None, float | None]:
        """Blocks and tokens a second; None before it was looked at for a second. `moment`: of any steady clock."""
        seen = self.seen.setdefault(row.id, deque())
        seen.append((moment, row.blocks, row.sampled_tokens))
        while len(seen) > 2 and seen[1][0] <= moment - self.window:
            seen.popleft()
        began, blocks, tokens = seen[0]
        if moment - began < 1:
            return None, None
        return (row.blocks - blocks) / (moment - began), (row.sampled_tokens - tokens) / (moment - began)


@dataclass
class Paced(Generic[T]):
    """An answer that is asked for anew every so often, and seldom enough where it takes long."""

    ask: Callable[[], T]
    every: float = 1.0
    """Seconds between two questions at least."""
    share: float = 0.05
    """Of the time that is spent asking, at most."""
    answer: T | None = None
    due: float = 0.0

    def get(self) -> T:
        """The answer, not older than that."""
        began = time.monotonic()
        if self.answer is None or began >= self.due:
            self.answer = self.ask()
            over = time.monotonic()
            self.due = max(began + self.every, over + (over - began) * (1 / self.share - 1))
        return self.answer
