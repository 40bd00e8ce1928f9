"""What went wrong at a model server, counted for people. Pure: no I/O, no clock."""

from dataclasses import dataclass, field

from weavegen.errors import TransientError

MAX_ERROR_CHARS = 500


@dataclass
class Failures:
    """Failed requests, including those that ask for metrics or probe the server."""

    count: int = 0
    since_ok: int = 0
    """Those of them after the last answer to a request of a step."""
    error: str = ""
    """The last error, in one line."""
    at: float = 0.0
    """When the last error came, in seconds of a monotonic clock."""
    traces: set[int] = field(default_factory=set)
    """Two of the traces whose requests failed."""

    def add(self, error: Exception, now: float, trace: int | None = None) -> None:
        self.count, self.since_ok = self.count + 1, self.since_ok + 1
        if trace is not None and len(self.traces) < 2:
            self.traces.add(trace)
        self.error, self.at = one_line(error), now

    def told(self, now: float) -> str:
        """The last failure, with its age and the number of failures since the last answer."""
        times = "once" if self.since_ok == 1 else f"{self.since_ok:,} times, the last"
        return f"{self.error}, {times} {max(0, now - self.at):.0f} s ago"


@dataclass
class Health:
    """What a server answered since this was last taken."""

    answered: bool = False
    """Whether a request of a step was answered."""
    failures: dict[str, Failures] = field(default_factory=dict)
    """By kind of error."""

    def ok(self) -> None:
        self.answered = True
        for failures in self.failures.values():
            failures.since_ok = 0

    def failed(self, error: Exception, now: float) -> None:
        self.failures.setdefault(error_kind(error), Failures()).add(error, now)


def error_kind(error: Exception) -> str:
    """Kind of a failure of a server. Errors of a probe that are not transient: the server lacks the model."""
    return error.kind if isinstance(error, TransientError) else "unfit"


def one_line(error: Exception) -> str:
    """An error's text in one line, without NUL, which PostgreSQL does not store."""
    return " ".join(str(error).replace("\x00", "\ufffd").split())[:MAX_ERROR_CHARS]
