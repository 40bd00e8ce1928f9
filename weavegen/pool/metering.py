"""Sums the token usage of the requests of a thread, as the servers report it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class TokenUsage:
    """Sums over answered requests."""

    requests: int = 0
    sequences: int = 0
    """Prompts times continuations: vLLM's unit of scheduling."""
    prompt_tokens: int = 0
    """Of completions, a prompt counts once for each of its continuations, as in vLLM's counters; of chats once."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache, of one sequence of requests with one prompt; None: not reported."""
    sampled_tokens: int = 0
    uncounted: int = 0
    """Requests without reported tokens. They count in `requests` and `sequences` only."""


_meter: ContextVar[TokenUsage | None] = ContextVar("meter", default=None)


@contextmanager
def metered() -> Iterator[TokenUsage]:
    """Sum the requests that this thread makes in the body."""
    usage = TokenUsage()
    token = _meter.set(usage)
    try:
        yield usage
    finally:
        _meter.reset(token)


def count(sequences: int, prompt_tokens: int | None, cached_tokens: int | None, sampled_tokens: int | None) -> None:
    """Count an answered request: its sequences, and tokens as the server counts them (None: not reported)."""
    if (usage := _meter.get()) is None:
        return
    usage.requests += 1
    usage.sequences += sequences
    if prompt_tokens is None or sampled_tokens is None:
        usage.uncounted += 1
        return
    usage.prompt_tokens += prompt_tokens
    if cached_tokens is not None:
        usage.cached_tokens = (usage.cached_tokens or 0) + cached_tokens
    usage.sampled_tokens += sampled_tokens
