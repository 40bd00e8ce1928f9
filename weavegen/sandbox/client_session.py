"""A worker's end of the socket: what may be said, for how long, and what is made of it."""

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from weavegen.box.wire import MAX_BYTES_FROM_BOX, MAX_BYTES_TO_BOX, BrokenFrame, Reader, frame
from weavegen.channels.exchange import Chat, Exchange
from weavegen.errors import ModelError, TransientError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.answer import Unacceptable, accept, plain_text

SYNC = 2**20
"""Bytes of blocks that go into one message."""
PROMPTS = 4_096
"""Prompts that one operation may have answered."""
PARTS = 1_000_000
"""Commas and brackets in one message: a few bytes each, but 60 and more as Python's objects."""
QUESTIONS = 4_096
"""Messages with prompts that one operation may send; one may be without any."""
PROMPT_TEXT = 64 * 2**20
"""Characters of all prompts of one operation together. A worker holds those of one message, which is 8 MiB."""
EXCHANGES = 1_000
"""Times that one operation may write into channels or read them."""
PATIENCE = 1_800.0
"""Seconds that one operation may wait for people, all its waits together: it holds a worker for so long."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class BlockBrief(msgspec.Struct, frozen=True):
    """A recorded block, as far as the environment needs to know it."""

    index: int
    type: str
    body: str


Blocks = Callable[[int], list[BlockBrief]]
"""The trace's blocks from this index on."""
Ask = Callable[[list[str]], list[tuple[float, float]]]
"""The model's mass of yes and of no after each of these prompts."""


def no_blocks(since: int) -> list[BlockBrief]:
    return []


def undecided(prompts: list[str]) -> list[tuple[float, float]]:
    """A model that never knows."""
    return [(0.5, 0.5)] * len(prompts)


class Hello(msgspec.Struct, frozen=True):
    blocks: Whole


class Question(msgspec.Struct, frozen=True):
    number: Whole
    prompts: list[str]


class Message(msgspec.Struct, frozen=True):
    """What the box may say; one of these."""

    hello: Hello | None = None
    ask: Question | None = None
    chat: Exchange | None = None
    result: Executed | None = None
    step_id: int | None = None
    """Whose result it is."""
    replaced: bool = False


class Broken(Exception):
    """The conversation can't go on: cut, out of time, or nonsense."""

    def __init__(self, text: str, *, cut: bool = False):
        super().__init__(text)
        self.cut = cut


class Conversation:
    """A connection to an environment, and the time that is left for it. Raises Broken, and nothing else."""

    decoder = msgspec.json.Decoder(Message)

    def __init__(self, path: Path, seconds: float):
        self.deadline = time.monotonic() + seconds
        self.seconds = seconds
        self.reader = Reader(MAX_BYTES_FROM_BOX)
        self.payloads: deque[bytes] = deque()
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(seconds)
        try:
            self.connection.connect(os.fspath(path))
        except OSError as error:
            self.connection.close()
            raise Broken(f"it can't be reached: {error}", cut=True) from error

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def send(self, message: dict[str, Any]) -> None:
        with self.in_time():
            self.connection.sendall(frame(message, MAX_BYTES_TO_BOX))

    def receive(self) -> Message:
        with self.in_time():
            while not self.payloads:
                self.check_time()
                data = self.connection.recv(2**18)
                if not data:
                    raise Broken("it closed the connection", cut=True)
                self.payloads.extend(self.reader.feed(data))
            payload = self.payloads.popleft()
            if sum(payload.count(sign) for sign in b",[{") > PARTS:
                raise BrokenFrame(f"a message of more than {PARTS:,} parts")
            return self.decoder.decode(payload)

    def check_time(self) -> None:
        """Raise TimeoutError if time is up, also where the box never lets the socket wait."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)

    def hello(self) -> int:
        """How many blocks it knows."""
        hello = self.receive().hello
        if hello is None:
            raise Broken("it did not greet")
        return hello.blocks

    @contextlib.contextmanager
    def in_time(self) -> Iterator[None]:
        try:
            self.check_time()
            yield
        except TimeoutError as error:
            raise Broken(f"no answer within {self.seconds:g} seconds") from error
        except OSError as error:
            raise Broken(str(error), cut=True) from error
        except (BrokenFrame, Unacceptable, msgspec.MsgspecError) as error:
            raise Broken(f"it sent what it may not: {error}") from error
        except (UnicodeError, RecursionError, OverflowError) as error:  # which msgspec lets through
            raise Broken(f"it sent what it may not: {type(error).__name__}") from None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the time of the body not count."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.deadline += time.monotonic() - began


def sync(blocks: Blocks, known: int) -> Iterator[dict[str, Any]]:
    """Messages that tell the box of the blocks it does not know."""
    part: list[tuple[int, str, str]] = []
    size = 0
    for block in blocks(known):
        part.append((block.index, str(block.type), block.body))
        size += len(block.body)
        if size > SYNC:
            yield {"blocks": part}
            part, size = [], 0
    if part:
        yield {"blocks": part}


def listen(talk: Conversation, ask: Ask, chat: Chat, step_id: int, step: Execute) -> Executed:
    """Answer the box's questions until it has a result for the step."""
    prompts = questions = characters = exchanges = 0
    waits = 0.0
    while True:
        message = talk.receive()
        if message.result is not None:
            with talk.in_time():
                if message.step_id != step_id:
                    raise Unacceptable(f"the result of step {message.step_id} instead of that of {step_id}")
                return accept(message.result, step)
        if message.replaced:
            raise TransientError("another worker waits for this step now")
        if message.chat is not None:
            exchanges += 1
            waits += message.chat.wait
            if exchanges > EXCHANGES or waits > PATIENCE:
                raise Broken(
                    f"it exchanged messages more than {EXCHANGES:,} times in one operation, "
                    f"or waited for more than {PATIENCE:,.0f} seconds"
                )
            with talk.in_time():
                plain_text(message.chat.text, len(message.chat.text))
                plain_text(message.chat.channel, len(message.chat.channel))
            with talk.paused():
                answers = chat(message.chat)
            talk.send({"answers": {"number": message.chat.number, **answers}})
            continue
        if message.ask is None:
            raise Broken("it said nothing that makes sense")
        questions += 1
        prompts += len(message.ask.prompts)
        characters += sum(map(len, message.ask.prompts))
        if max(questions / QUESTIONS, prompts / PROMPTS, characters / PROMPT_TEXT) > 1:
            raise Broken(f"it asked the model more than {PROMPTS:,} times in one operation, or of too much text")
        with talk.in_time():
            for prompt in message.ask.prompts:
                plain_text(prompt, len(prompt))
        with talk.paused():
            try:
                answers = {"values": ask(message.ask.prompts)}
            except ModelError as error:
                answers = {"error": str(error)}
        talk.send({"answers": {"number": message.ask.number, **answers}})
