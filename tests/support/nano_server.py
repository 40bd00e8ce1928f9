"""`weavegen nano serve` in a process of its own."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weavegen.pool.client import ModelClient

PROMPT = "#startblock type: action\ndef move(cell):\n"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Yields the address of a server of the model in `folder`. Ctrl-C must end it without an error message."""
    command = [sys.executable, "-m", "weavegen.cli", "nano", "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    match = re.search(r"http://\S+/v1", line := process.stderr.readline())
    assert match, line
    yield match[0]
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=20)[1]
    assert (process.returncode, rest) == (130, "")


def likelihood(url: str, model: str | None, prompt: str = PROMPT) -> tuple[list[int], list[float]]:
    """The likeliest next tokens after a prompt, and their log-probabilities."""
    client = ModelClient(url, "EMPTY", model, timeout=60)
    try:
        options = {"n": 1, "max_tokens": 8, "temperature": 0.0, "top_k": 0, "repetition_penalty": 1.0, "seed": 1}
        [continuation] = client.sample(client.encode(prompt, bos=True), stop=(), **options).continuations  # type: ignore[arg-type]
        return list(continuation.token_ids), list(continuation.logprobs)
    finally:
        client.close()
