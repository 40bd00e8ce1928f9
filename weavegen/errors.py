"""Every error that weavegen raises on purpose, on one page."""

from typing import TypeVar

T = TypeVar("T")


class WeavegenError(Exception):
    """Base of all errors raised on purpose."""


class UsageError(WeavegenError):
    """The input is wrong; the message is one line that says what to do. The command line exits with 2."""


class RolloutError(WeavegenError):
    """A trace can't go on. It is data: recorded on the trace under `kind`, never retried for ever."""

    kind = "bug"


class ModelError(RolloutError):
    """The model server refused a request for good (context too long, unknown model, bad parameter)."""

    kind = "model"


class EnvironmentFailure(RolloutError):
    """The environment process died or gave invalid answers too often, or a callback broke its state."""

    kind = "environment"


class ImageFailure(EnvironmentFailure):
    """The image of a task can't be made, so that no environment of a trace can start."""


class NotFound(ModelError):
    """A server has nothing at an address: it lacks a feature, or the address is wrong."""


class ChatOnly(ModelError):
    """A server has a chat API and no completions."""


class TransientError(WeavegenError):
    """The same call may succeed later: server busy, connection cut, process restarting."""

    kind = "other"
    """Kind of a server's failure: refused, connection, timeout, busy, status, malformed, unfit."""

    def __init__(self, message: str = "", *, kind: str | None = None, seconds: float | None = None) -> None:
        """`seconds`: when to try again; None: it is not known."""
        super().__init__(message)
        self.kind = kind or self.kind
        self.seconds = seconds


class Busy(TransientError):
    """A server is overloaded at the moment. `seconds`: how long it asks to be left alone."""

    kind = "busy"


class Refused(TransientError):
    """Nobody listens at a server's address."""

    kind = "refused"


class Unfit(TransientError):
    """A server can't be used until somebody changes something: its key, its address, its options."""

    kind = "unfit"


class Unserved(TransientError):
    """Something that a step needs, such as a server, is missing now. The attempt does not count against the step.

    `seconds`: when to try again, at the latest; None: soon.
    """


class JournalMismatch(WeavegenError):
    """A replay asked for another step than its journal holds: the program changed under a running trace."""


class StepLost(WeavegenError):
    """The lease on a step is gone: another worker holds it, or the trace was cancelled."""


def required(value: T | None, missing: str) -> T:
    """The value. Raises UsageError if it is None; `missing` says what to do."""
    if value is None:
        raise UsageError(missing)
    return value
