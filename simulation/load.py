"""The simulated engine in real time: `batch.Batch`, driven by asyncio's clock."""

import asyncio

from simulation import metrics
from simulation.batch import Batch, Sequence
from simulation.parameters import Faults, Load

__all__ = ["Engine", "Faults", "Load"]

_GRAIN = 0.002
"""Minimum seconds between two wake-ups. A response may be this late, but delays do not add up."""


class _Request:
    """Sequences of one request, and a future for the end of all of them."""

    def __init__(self, left: int, loop: asyncio.AbstractEventLoop) -> None:
        self.left = left
        self.over: asyncio.Future[None] = loop.create_future()


class Engine:
    """Delays requests as the load model says, and counts them. Belongs to one event loop."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.batch = Batch(load)
        self._requests: dict[Sequence, _Request] = {}
        self._timer: asyncio.TimerHandle | None = None

    def at_once(self, sequences: list[Sequence]) -> None:
        """Count sequences if the load model takes no time."""
        for sequence in sequences:
            self.batch.at_once(sequence)

    async def work(self, sequences: list[Sequence]) -> None:
        """Wait until all the sequences have ended. If it is cancelled, they are aborted."""
        if self.load.instant:
            self.at_once(sequences)
            return
        loop = asyncio.get_running_loop()
        request = _Request(len(sequences), loop)
        self._advance()
        for sequence in sequences:
            self._requests[sequence] = request
            self.batch.add(sequence)
        self._advance()
        try:
            await request.over
        except asyncio.CancelledError:
            self._advance()
            left = [sequence for sequence in sequences if self._requests.pop(sequence, None) is not None]
            self.batch.abort(left, loop.time())
            self._advance()
            raise

    def metrics(self) -> str:
        """The current response to `/metrics`."""
        if not self.load.instant:
            self._advance()
            self.batch.count_slots(asyncio.get_running_loop().time())
        return metrics.text(self.batch)

    def _advance(self) -> None:
        """Advance the batch to now, wake the requests that have ended, and schedule the next call."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for sequence in self.batch.advance(now):
            request = self._requests.pop(sequence)
            request.left -= 1
            if not request.left and not request.over.done():
                request.over.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        due = self.batch.next_event()
        self._timer = None if due is None else loop.call_at(max(due, now + _GRAIN), self._advance)
