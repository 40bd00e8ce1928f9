"""Frames between a worker and the environment: the length in four bytes, big-endian, then a JSON object.

A connection serves one operation. The box sends a greeting, the worker sends an operation, and the box sends the
result, perhaps after requests of its own:

    box      {"hello": {"blocks": 12}}                     how many of the trace's blocks the box knows
    worker   {"blocks": [[12, "action", "..."], ...]}      the missing blocks, in one or more messages
    worker   {"op": {"step_id": 7, "op": "run", ...}}
    box      {"ask": {"number": 1, "prompts": [...]}}      a callback asks the evaluator these prompts
    worker   {"answers": {"number": 1, "values": [[0.8, 0.1], ...]}}        P(yes) and P(no) after each prompt
    worker   {"answers": {"number": 1, "error": "..."}}                     or why the model can't be asked
    box      {"complete": {"number": 2, "turn": 1, "prompt": "...", "n": 4, "max_tokens": 64, "stop": [], ...}}
                                                           a callback has the model continue a text; the values
                                                           of the answer are texts
    box      {"chat": {"number": 2, "turn": 1, "do": "send", "channel": "lobby", "text": "Hello"}}
                                                           a callback uses a channel; turns count from 1 in each
                                                           step, so that a repeated step gets the same answers
    worker   {"answers": {"number": 2, "values": ...}}     the answer to `channels.Exchange`, or "error" as above
    box      {"step_id": 7, "result": {...}}               a `steps.Executed`
    box      {"replaced": true}                            instead: another worker connected for the same step
"""

import os
import select
import time
from collections.abc import Iterator
from json import dumps, loads  # bound here: in the box, a callback may overwrite `json.dumps`
from typing import Any

MAX_BYTES_TO_BOX = 16 * 2**20
"""Bytes that a worker may send in one message."""
MAX_BYTES_FROM_BOX = 8 * 2**20
"""Bytes that the box may send in one message."""


class BrokenFrame(ValueError):
    """A frame is too long, or does not hold a JSON object."""


def frame(message: Any, limit: int, *, allow_nan: bool = False) -> bytes:
    """Encode a message. Raises BrokenFrame if its JSON is longer than `limit` bytes."""
    payload = dumps(message, separators=(",", ":"), allow_nan=allow_nan).encode()
    if len(payload) > limit:
        raise BrokenFrame(f"a message has {len(payload):,} bytes, more than the {limit:,} allowed")
    return len(payload).to_bytes(4, "big") + payload


class Reader:
    """Reassembles messages from the pieces in which they arrive."""

    def __init__(self, limit: int):
        self.limit = limit
        self.buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the JSON of each message that `data` completes. Raises BrokenFrame."""
        self.buffer += data
        while len(self.buffer) >= 4:
            length = int.from_bytes(self.buffer[:4], "big")
            if length > self.limit:
                raise BrokenFrame(f"a message has {length:,} bytes, more than the {self.limit:,} allowed")
            if len(self.buffer) < 4 + length:
                return
            payload = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            yield payload


def read_frame(pipe: int, limit: int, deadline: float | None = None) -> bytes:
    """Read the payload of a frame. Raises BrokenFrame, EOFError, and TimeoutError after `deadline` (monotonic)."""
    length = int.from_bytes(read(pipe, 4, deadline), "big")
    if length > limit:
        raise BrokenFrame(f"a message has {length:,} bytes, more than the {limit:,} allowed")
    return read(pipe, length, deadline)


def read(pipe: int, count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None and not ready(pipe, select.POLLIN, deadline):
            raise TimeoutError
        if not (more := os.read(pipe, count - len(data))):
            raise EOFError
        data += more
    return bytes(data)


def write(pipe: int, data: bytes, deadline: float | None = None) -> None:
    """Write to a pipe, until `deadline` at most: its reader may not read. Raises OSError if the reader is gone."""
    view = memoryview(data)
    while view and (deadline is None or ready(pipe, select.POLLOUT, deadline)):
        view = view[os.write(pipe, view[: select.PIPE_BUF]) :]


def ready(descriptor: int, event: int, deadline: float) -> bool:
    """Wait until a pipe or socket can be read or written, or is closed. Returns whether that was before `deadline`."""
    poll = select.poll()
    poll.register(descriptor, event)
    left = deadline - time.monotonic()
    return left > 0 and bool(poll.poll(left * 1000))


def parse(payload: bytes) -> dict[str, Any]:
    """Decode a message. Raises BrokenFrame."""
    try:
        message = loads(payload)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"a message is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise BrokenFrame("a message is not a JSON object")
    return message
