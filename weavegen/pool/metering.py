"""What the requests of a thread take from the servers, as these count it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class TokenUsage:
    """Answered requests, summed up."""

    requests: int = 0
    sequences: int = 0
    """Prompts times continuations: what vLLM schedules, and counts."""
    prompt_tokens: int = 0
    """Of every sequence, so a prompt counts once for each of its continuations, as in vLLM's own counters."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache, as far as it is told: of one sequence of a request with one prompt.
    None: nothing was told."""
    sampled_tokens: int = 0
    uncounted: int = 0
    """Requests whose tokens the server did not tell; they are in none of the sums above but the first two."""


_meter: ContextVar[TokenUsage | None] = ContextVar("meter", default=None)


@contextmanager
def metered() -> Iterator[TokenUsage]:
    """Sums up the requests that this thread makes inside."""
    used = TokenUsage()
    token = _meter.set(used)
    try:
        yield used
    finally:
        _meter.reset(token)


def count(
    prompts: int, n: int, prompt_tokens: int | None, cached_tokens: int | None, sampled_tokens: int | None
) -> None:
    """A request was answered: `n` continuations of each prompt. Tokens as in its `usage`; None: it did not say."""
    if (used := _meter.get()) is None:
        return
    used.requests += 1
    used.sequences += prompts * n
    if prompt_tokens is None or sampled_tokens is None:
        used.uncounted += 1
        return
    used.prompt_tokens += prompt_tokens * n
    if cached_tokens is not None:
        used.cached_tokens = (used.cached_tokens or 0) + cached_tokens
    used.sampled_tokens += sampled_tokens
