"""Runs model-written code under a time limit (`Clock`) and captures its output (`OutputCapture`)."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

MAX_OUTPUT_CHARS = 8_000
"""Characters of an operation's output that are kept."""

TRUNCATED = "\n... (more was printed)"


class TimeLimit(BaseException):
    """Raised in a callback that exceeds its time. Not an Exception, so that `except Exception` does not catch it."""


class Clock:
    """Time limit of the main thread, by SIGALRM. It raises only inside `limit`."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.deadline = 0.0

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise TimeLimit in the body after `seconds` of wall time, and again every second until it ends."""
        outer = (self.seconds, self.deadline)
        signal.signal(signal.SIGALRM, self.on_alarm)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        self.arm(seconds, time.monotonic() + seconds)
        try:
            yield
        finally:
            self.arm(*outer)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock in the body: waiting for the model or for a subagent does not count."""
        if self.seconds is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        seconds, left = self.seconds, self.deadline - time.monotonic()
        self.stop()  # a subagent's operations set their own limits in the body
        try:
            yield
        finally:
            self.arm(seconds, time.monotonic() + left)

    def stop(self) -> None:
        """Disarm the timer. Also needed when the alarm interrupts the end of `limit`."""
        self.arm(None, 0.0)

    def arm(self, seconds: float | None, deadline: float) -> None:
        """Raise TimeLimit at `deadline` (of time.monotonic), or never if `seconds` is None."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds, self.deadline = seconds, deadline
        if seconds is not None:
            signal.setitimer(signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001), 1.0)

    def on_alarm(self, number: int, frame: FrameType | None) -> None:
        if self.seconds is not None:
            raise TimeLimit(f"this took longer than {self.seconds:g} seconds")


def redirect(descriptor: int) -> None:
    """Let stdout and stderr write to a descriptor, even if something has replaced or closed them."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(descriptor, number)
        file = open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def flush() -> None:
    """Write what stdout and stderr hold back."""
    for file in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # closed or replaced by the callback
            file.flush()


class OutputCapture:
    """Captures stdout and stderr of this process and its children. Text over MAX_OUTPUT_CHARS is dropped."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.lock = threading.Lock()
        self.captured = bytearray()
        self.dropped = False
        redirect(self.write_end)

    def drain(self, max_bytes: int = 2**20) -> None:
        """Read from the pipe, so that no writer blocks on a full pipe."""
        with self.lock:
            while max_bytes > 0:
                try:
                    data = os.read(self.read_end, 65_536)
                except BlockingIOError:
                    return
                max_bytes -= len(data)
                room = 4 * MAX_OUTPUT_CHARS - len(self.captured)
                self.captured += data[:room]
                self.dropped |= len(data) > room

    def take(self) -> str:
        """Return the text that was captured since the last call."""
        flush()
        redirect(self.write_end)  # before another file can get the descriptor of a closed stdout
        self.drain()
        with self.lock:
            text, dropped = self.captured.decode("utf-8", "backslashreplace"), self.dropped
            self.captured.clear()
            self.dropped = False
        if dropped or len(text) > MAX_OUTPUT_CHARS:
            return text[: MAX_OUTPUT_CHARS - len(TRUNCATED)] + TRUNCATED
        return text
