"""What is put around model-written code while it runs: a time limit, and captures what it prints."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

OUTPUT = 8_000
"""Characters of an operation's output that are kept."""

MORE = "\n... (more was printed)"


class TimeLimit(BaseException):
    """Raised in a callback whose time is up. No Exception, so that a callback can't easily swallow it."""


class Clock:
    """The time limit of the main thread. Outside `limit` nothing is raised."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.deadline = 0.0

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise TimeLimit in the body after `seconds` of wall time, and again each second until it leaves."""
        outer = (self.seconds, self.deadline)
        signal.signal(signal.SIGALRM, self.ring)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        self.seconds, self.deadline = seconds, time.monotonic() + seconds
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 1.0)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.seconds, self.deadline = outer
            if self.seconds is not None:
                signal.setitimer(signal.ITIMER_REAL, max(self.deadline - time.monotonic(), 0.001), 1.0)

    def stop(self) -> None:
        """Disarm, also where the alarm rang in the very moment in which `limit` was being left."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time of the body not count: a callback pays for no answer of the model, and for no subagent."""
        if self.seconds is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        seconds, left = self.seconds, self.deadline - time.monotonic()
        self.seconds = None  # a subagent's operations have limits of their own in the body
        try:
            yield
        finally:
            self.seconds, self.deadline = seconds, time.monotonic() + left
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), 1.0)

    def ring(self, number: int, frame: FrameType | None) -> None:
        if self.seconds is not None:
            raise TimeLimit(f"this took longer than {self.seconds:g} seconds")


class OutputCapture:
    """Everything written to stdout and stderr, by Python or by child processes; more than OUTPUT is dropped."""

    def __init__(self) -> None:
        self.end, self.mouth = os.pipe()
        os.set_blocking(self.end, False)
        self.lock = threading.Lock()
        self.heard = bytearray()
        self.dropped = False
        self.attach()

    def attach(self) -> None:
        """Point stdout and stderr here, whatever the last operation did to them."""
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(self.mouth, number)
            file = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
            setattr(sys, name, file)
            setattr(sys, f"__{name}__", file)

    def drain(self, most: int = 2**20) -> None:
        """Take what is there, so that nobody blocks on a full pipe."""
        with self.lock:
            while most > 0:
                try:
                    data = os.read(self.end, 65_536)
                except BlockingIOError:
                    return
                most -= len(data)
                room = 4 * OUTPUT - len(self.heard)
                self.heard += data[:room]
                self.dropped |= len(data) > room

    def begin(self) -> None:
        """Forget what was printed before."""
        self.take()

    def take(self) -> str:
        """What was printed since `begin`."""
        for file in (sys.stdout, sys.stderr):
            try:
                file.flush()
            except (AttributeError, ValueError, OSError):
                continue  # closed or replaced by the callback
        self.attach()  # at once: a file that is opened next would get the number of a closed stdout
        self.drain()
        with self.lock:
            text, dropped = self.heard.decode("utf-8", "backslashreplace"), self.dropped
            self.heard.clear()
            self.dropped = False
        if dropped or len(text) > OUTPUT:
            return text[: OUTPUT - len(MORE)] + MORE
        return text
