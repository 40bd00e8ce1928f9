"""How far jobs are, how fast they run, and when they will be over: for the terminal and the viewer."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from weavegen.database import Connection
from weavegen.store import reports
from weavegen.store.reports import JobRow
from weavegen.store.states import JobState

T = TypeVar("T")


def seconds_left(row: JobRow) -> float | None:
    """An estimate from the part that is done, without pauses. None for a job that is not active, and below 1 %."""
    worked = row.seconds - row.paused_seconds
    if not row.open or row.state != JobState.ACTIVE or not 0.01 <= row.progress < 1 or worked <= 0:
        return None
    return worked * (1 - row.progress) / row.progress


@dataclass
class Rates:
    """What jobs write per second, averaged over the last seconds. Each observer has its own Rates."""

    window: float = 10.0
    """Seconds over which a rate is averaged."""
    seen: dict[int, deque[tuple[float, int, int]]] = field(default_factory=dict)
    """By job: moment, blocks and sampled tokens of each observation in the window."""

    def now(self, moment: float, row: JobRow) -> tuple[float | None, float | None]:
        """Blocks and tokens per second; of a job that is over, the means of all its time. `moment`: of a steady clock.

        None until a second after the first call.
        """
        if not row.open:
            return (row.blocks / row.seconds, row.sampled_tokens / row.seconds) if row.seconds else (None, None)
        seen = self.seen.setdefault(row.id, deque())
        seen.append((moment, row.blocks, row.sampled_tokens))
        while len(seen) > 2 and seen[1][0] <= moment - self.window:
            seen.popleft()
        began, blocks, tokens = seen[0]
        if moment - began < 1:
            return None, None
        return (row.blocks - blocks) / (moment - began), (row.sampled_tokens - tokens) / (moment - began)


@dataclass(frozen=True)
class JobNow:
    """A job at a moment."""

    row: JobRow
    blocks: float | None
    """Per second, over the window; for a finished job, over all its time. None: not observed long enough."""
    tokens: float | None
    """Sampled tokens per second, likewise."""


def read_jobs(conn: Connection, rates: Rates, job_id: int | None = None) -> list[JobNow]:
    """One job, or all open ones, in a transaction of its own."""
    with conn.transaction():
        rows = reports.jobs(conn, job_id, only_open=job_id is None)
    return [JobNow(row, *rates.now(time.monotonic(), row)) for row in rows]


@dataclass
class Paced(Generic[T]):
    """An answer that is computed again every so often, and less often if that takes long."""

    ask: Callable[[], T]
    every: float = 1.0
    """Minimum seconds between computations."""
    share: float = 0.05
    """Maximum share of the time that is spent computing."""
    answer: T | None = None
    due: float = 0.0
    """Moment of the next computation."""

    def get(self) -> T:
        began = time.monotonic()
        if self.answer is None or began >= self.due:
            self.answer = self.ask()
            over = time.monotonic()
            self.due = max(began + self.every, over + (over - began) * (1 / self.share - 1))
        return self.answer
