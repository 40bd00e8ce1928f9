"""The environment's socket in both directions: invalid data to the worker, and invalid data to the environment."""

import contextlib
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import TIMES, fuzz
from weavegen.box.wire import MAX_BYTES_FROM_BOX, MAX_BYTES_TO_BOX, BrokenFrame, Reader, frame, parse
from weavegen.channels.exchange import private_channels
from weavegen.errors import TransientError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.client_session import (
    ClientSession,
    SessionBroken,
    await_result,
    block_messages,
    no_tools,
    silent,
    undecided,
)

PROJECT = Path(__file__).resolve().parent.parent.parent
HANGS = 20.0
"""Seconds after which a conversation that needs one second counts as hanging."""

strange = st.text(max_size=9) | st.sampled_from(["", "\x00", "\ud800", "main", "tick", "action", "send", "run"])
whole = st.integers(-1, 3) | st.sampled_from([2**31, 2**63, 2**80, -(2**63) - 1])
scalars = st.none() | st.booleans() | whole | st.floats() | strange
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strange, inner, max_size=3), max_leaves=6
)


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def encoded(message: Any) -> bytes:
    return framed(json.dumps(message).encode())


HELLO = encoded({"hello": {"blocks": 0}})


# --------------------------------------------------------------------------------- pieces and messages


@fuzz(200)
@given(st.lists(st.binary(max_size=20) | anything.map(encoded)).map(b"".join), st.integers(1, 9))
def test_bytes_may_arrive_in_any_pieces(data: bytes, size: int) -> None:
    def read(pieces: list[bytes]) -> tuple[list[bytes], bool]:
        reader, payloads = Reader(1_000), []
        try:
            for piece in pieces:
                payloads += list(reader.feed(piece))
        except BrokenFrame:
            return payloads, True
        return payloads, False

    at_once, broken = read([data])
    in_pieces, also_broken = read([data[at : at + size] for at in range(0, len(data), size)])
    assert broken == also_broken
    if not broken:
        assert at_once == in_pieces
    for payload in at_once:
        with contextlib.suppress(BrokenFrame):
            assert isinstance(parse(payload), dict)


@fuzz(200)
@given(st.dictionaries(st.text(max_size=5), st.recursive(st.none() | whole | strange, st.lists, max_leaves=5)))
def test_a_framed_message_is_read_unchanged(message: dict[str, Any]) -> None:
    [payload] = Reader(MAX_BYTES_TO_BOX).feed(frame(message, MAX_BYTES_TO_BOX))
    assert parse(payload) == message


# ----------------------------------------------------------------------------- a worker and a foreign box


class Box:
    """A socket that sends given bytes, whatever it receives; then possibly the same bytes again and again."""

    def __init__(self, folder: str):
        self.path = Path(folder) / "box.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.fspath(self.path))
        self.listener.listen(16)
        self.data = self.over_and_over = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(HANGS)
                connection.sendall(self.data)
                threading.Thread(target=self.swallow, args=(connection,), daemon=True).start()
                while self.over_and_over:
                    connection.sendall(self.over_and_over)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)

    @staticmethod
    def swallow(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while connection.recv(2**18):
                pass

    def session(self, data: bytes, over_and_over: bytes = b"", op: str = "run") -> Executed | None:
        """The worker's result, or None if it refuses."""
        self.data, self.over_and_over = data, over_and_over
        step = Execute(op=op)  # type: ignore[arg-type]
        began = time.monotonic()
        try:
            with ClientSession(self.path, 1.0) as session:
                for message in block_messages(lambda since: [], session.hello()):
                    session.send(message)
                session.send({"op": {"step_id": 1}})
                return await_result(session, undecided, silent, private_channels(), no_tools, 1, step)
        except (SessionBroken, TransientError):
            return None
        finally:
            self.over_and_over = b""
            assert time.monotonic() - began < HANGS


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with tempfile.TemporaryDirectory() as folder:
        yield Box(folder)


def acceptable(executed: Executed | None) -> None:
    """The database can store every result that a worker accepts."""
    if executed is not None:
        text = msgspec.json.encode(executed)
        assert b"\\u0000" not in text
        assert msgspec.json.decode(text, type=Executed) == executed


FIELDS = {
    "hello": {"blocks": whole},
    "ask": {"number": whole, "prompts": st.lists(strange, max_size=3)},
    "complete": {
        "number": whole,
        "turn": whole,
        "prompt": strange,
        "n": whole,
        "max_tokens": whole,
        "stop": st.lists(strange, max_size=3),
        "temperature": anything,
    },
    "chat": {"number": whole, "turn": whole, "do": strange, "channel": strange, "text": strange, "limit": whole},
    "result": dict.fromkeys(Executed.__struct_fields__, anything),
}
messages = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.fixed_dictionaries({}, optional=of) | anything for name, of in FIELDS.items()},
        "step_id": st.just(1) | whole,
        "replaced": st.booleans() | anything,
    },
)


@fuzz(150)
@given(st.lists(messages | anything, max_size=4), st.binary(max_size=9), st.booleans())
def test_a_worker_refuses_invalid_messages(box: Box, told: list[Any], noise: bytes, greets: bool) -> None:
    acceptable(box.session(HELLO * greets + b"".join(map(encoded, told)) + noise))


def result(text: str) -> bytes:
    return HELLO + framed(f'{{"step_id":1,"result":{text}}}'.encode())


TOLD = {
    "nothing": b"",
    "a length": b"\x00\x00",
    "too long": b"\xff" * 9,
    "an empty frame": framed(b""),
    "no text": HELLO + framed(b"\xff\xfe\x00"),
    "half a frame": HELLO + b"\x00\x00\xff\xff{",
    "a huge count of blocks": encoded({"hello": {"blocks": 10**30}}),
    "too few blocks": encoded({"hello": {"blocks": -1}}),
    "a deep value": result('{"value":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "deep objects": result('{"value":' + '{"a":' * 100_000),
    "a deep unknown field": result('{"other":' + "[" * 100_000 + "]" * 100_000 + "}"),
    "a long number": result('{"value":' + "9" * 4_000 + "}"),
    "a longer number": result('{"value":' + "9" * 1_000_000 + "}"),
    "a number without end": result('{"value":1e999}'),
    "no number": result('{"value":NaN}'),
    "a lone surrogate": result('{"output":"\\ud800"}'),
    "NUL": result('{"value":"\\u0000"}'),
    "NUL in a name": result('{"registered":["\\u0000"]}'),
    "much output": result('{"output":"' + "a" * 7_000_000 + '"}'),
    "millions of values": result('{"value":[' + "[]," * 2_000_000 + "[]]}"),
    "thousands of evaluations": result('{"evaluations":[' + '{"title":"a","scope":"tick"},' * 50_000 + "{}]}"),
    "thousands of prompts": HELLO + encoded({"ask": {"number": 1, "prompts": ["a"] * 5_000}}),
    "a NUL to ask about": HELLO + framed(b'{"ask":{"number":1,"prompts":["\\u0000"]}}'),
    "a NUL to send": HELLO + framed(b'{"chat":{"number":1,"turn":1,"do":"send","channel":"a","text":"\\u0000"}}'),
    "another step's result": HELLO + encoded({"step_id": 2, "result": {}}),
}


@pytest.mark.parametrize("case", TOLD)
def test_a_worker_survives(box: Box, case: str) -> None:
    acceptable(box.session(TOLD[case]))


@pytest.mark.parametrize(
    "again",
    [
        framed(b'{"ask":{"number":1,"prompts":[]}}') * 50,
        framed(b'{"ask":{"number":1,"prompts":["a"]}}') * 50,
        framed(b'{"chat":{"number":1,"turn":1,"do":"read","channel":"a"}}') * 50,
        framed(b"{}") * 50,
        b"\x00",
        b"\x00\x7f\xff\xff" + b" " * 2**16,
    ],
    ids=["questions without prompts", "questions", "messages", "nothing", "empty frames", "one long frame"],
)
def test_a_box_that_never_stops_sending_is_cut_off(box: Box, again: bytes) -> None:
    assert box.session(HELLO, again) is None


# ----------------------------------------------------------------------------- a box and a foreign worker

START = "import sys; sys.path.insert(0, sys.argv[1]); from weavegen.box.boot import main; main(int(sys.argv[2]))"


class Process:
    """A real environment process without its sandbox. The data sent to it contains no code that runs."""

    def __init__(self, folder: str):
        self.path = Path(folder) / "worker.sock"
        app = Path(folder) / "app"
        app.mkdir()
        args = {"budget": 60.0, "port": 0, "model_name": "none", "params": {}}
        with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile("w+") as file:
            listener.bind(os.fspath(self.path))
            listener.listen(64)
            folders = {"app": str(app), "packages": None, "files": None, "user": None}
            json.dump(folders | {"listener": listener.fileno(), "seed": 1, "args": args}, file)
            file.seek(0)
            self.child = subprocess.Popen(
                [sys.executable, "-sSPB", "-c", START, str(PROJECT), str(file.fileno())],
                pass_fds=(listener.fileno(), file.fileno()), stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def send(self, data: bytes) -> bytes:
        """Send bytes and close that direction. Returns the answer until the process closes the connection."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(HANGS)
            connection.connect(os.fspath(self.path))
            heard = b""
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it closed the connection meanwhile
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(2**18):
                    heard += piece
            return heard

    def lives(self) -> bool:
        """Whether it greets the next worker, and its main thread still executes steps."""
        step_id = next(step_ids)
        try:
            with ClientSession(self.path, HANGS) as session:
                session.hello()
                op = {"step_id": step_id, "op": "list", "subagent": "main", "type": None, "source": "", "seconds": 5}
                session.send({"op": op})
                return session.receive().result is not None
        except SessionBroken:
            return False


step_ids = itertools.count(10**6)


@pytest.fixture
def process() -> Iterator[Process]:
    with tempfile.TemporaryDirectory() as folder:
        process = Process(folder)
        yield process
        process.child.kill()
        process.child.wait()


HEARD = {
    "nothing": b"",
    "too long": b"\xff" * 9,
    "half a frame": b"\x00\x00\xff\xff{",
    "an empty frame": framed(b""),
    "no text": framed(b"\xff\xfe\x00"),
    "a list": encoded([]),
    "deep": framed(b"[" * 1_000_000),
    "deep objects": framed(b'{"op":' * 1_000_000),
    "a long number": framed(b'{"op":{"step_id":' + b"9" * 1_000_000 + b"}}"),
    "blocks that are none": encoded({"blocks": 5}),
    "blocks of nothing": encoded({"blocks": [[]]}),
    "blocks without names": encoded({"blocks": [[0, None, {}]]}),
    "no operation": encoded({"op": 5}),
    "an answer to nothing": encoded({"answers": []}),
    "a number that is none": encoded({"op": {"step_id": "many"}}),
    "millions of empty messages": encoded({}) * 200_000,
}
BAD_STEPS: dict[str, Any] = {
    "a number without end": {"step_id": float("inf")},
    "no number": {"step_id": float("nan")},
    "no subagent": {"step_id": 7, "op": "run"},
    "no operation's name": {"step_id": 8, "subagent": "main"},
    "a subagent that is a list": {"step_id": 9, "op": "run", "subagent": [], "source": "", "seconds": 1},
    "an operation that is a list": {"step_id": 10, "op": [], "subagent": "main", "source": "", "seconds": 1},
    "no seconds": {"step_id": 11, "op": "list", "subagent": "main", "source": "", "seconds": None},
    "seconds without end": {"step_id": 12, "op": "list", "subagent": "main", "source": "", "seconds": float("inf")},
    "a source that is none": {"step_id": 13, "op": "bootstrap", "subagent": "main", "source": {}, "seconds": 1},
}


def test_a_box_survives_every_message(process: Process) -> None:
    for case, data in HEARD.items():
        process.send(data)
        assert process.lives(), case


@pytest.mark.parametrize("case", BAD_STEPS)
def test_a_box_survives_every_step(process: Process, case: str) -> None:
    process.send(encoded({"op": BAD_STEPS[case]}))
    assert process.lives()


def test_a_box_survives_noise(process: Process) -> None:
    rng = random.Random(1 if TIMES == 1 else None)
    whole = [data for data in HEARD.values() if len(data) < 10_000]
    for _ in range(150 * TIMES):
        data = bytearray(b"".join(rng.choices(whole, k=rng.randint(1, 4))))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        assert len(process.send(bytes(data))) <= MAX_BYTES_FROM_BOX
    assert process.lives()
