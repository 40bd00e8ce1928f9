"""Frames between a worker and the environment: four bytes of length, big-endian, and a JSON text.

A conversation is one operation. The box greets, the worker asks, the box may ask back, the box answers:

    box      {"hello": {"blocks": 12}}                     how many of the trace's blocks it knows
    worker   {"blocks": [[12, "action", "..."], ...]}      the ones it does not, in as many messages as it takes
    worker   {"op": {"step_id": 7, "op": "run", ...}}
    box      {"ask": {"number": 1, "prompts": [...]}}      an evaluator call in a callback: texts to be completed
    worker   {"answers": {"number": 1, "values": [[0.8, 0.1], ...]}}        mass of yes and of no for each
    worker   {"answers": {"number": 1, "error": "..."}}                     or why it can't be answered
    box      {"chat": {"number": 2, "turn": 1, "do": "send", "channel": "lobby", "text": "Hello"}}
                                                           a message tool; turns count from 1 in each step, so
                                                           that one that is done again is answered as before
    worker   {"answers": {"number": 2, "values": ...}}     what `channels.Exchange` says; or "error" as above
    box      {"step_id": 7, "result": {...}}               a `steps.Executed`
    box      {"replaced": true}                            instead: another worker has asked for the same step
"""

from collections.abc import Iterator
from json import dumps, loads  # bound here: in the box, a callback may overwrite what it finds in the module
from typing import Any

TO_BOX = 16 * 2**20
"""Bytes a worker may send in one message."""
FROM_BOX = 8 * 2**20
"""Bytes the box may send in one message."""


class BrokenFrame(Exception):
    """The other side sent a frame that is too long, or no JSON object."""


def frame(message: dict[str, Any], limit: int) -> bytes:
    """The bytes of a message. Raises BrokenFrame if they are more than `limit`."""
    payload = dumps(message, separators=(",", ":"), allow_nan=False).encode()
    if len(payload) > limit:
        raise BrokenFrame(f"a message of {len(payload):,} bytes: {limit:,} are allowed")
    return len(payload).to_bytes(4, "big") + payload


class Reader:
    """Puts messages together from whatever pieces arrive."""

    def __init__(self, limit: int):
        self.limit = limit
        self.buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The texts of the messages that `data` completes. Raises BrokenFrame."""
        self.buffer += data
        while len(self.buffer) >= 4:
            length = int.from_bytes(self.buffer[:4], "big")
            if length > self.limit:
                raise BrokenFrame(f"a message of {length:,} bytes: {self.limit:,} are allowed")
            if len(self.buffer) < 4 + length:
                return
            payload = bytes(self.buffer[4 : 4 + length])
            del self.buffer[: 4 + length]
            yield payload


def parse(payload: bytes) -> dict[str, Any]:
    """The message in a frame. Raises BrokenFrame."""
    try:
        message = loads(payload)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame(f"a message that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise BrokenFrame("a message that is no JSON object")
    return message
