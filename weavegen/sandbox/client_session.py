"""The worker's side of the socket protocol (box/wire.py), with limits on the number, size and time of messages."""

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from weavegen.box.wire import MAX_BYTES_FROM_BOX, MAX_BYTES_TO_BOX, BrokenFrame, Reader, frame
from weavegen.channels.exchange import Chat, Exchange
from weavegen.errors import ModelError, TransientError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.answer import InvalidAnswer, check_answer, check_text

MAX_BLOCK_CHARS_PER_MESSAGE = 2**20
"""Characters of blocks per message."""
MAX_PROMPTS = 4_096
"""Prompts that an operation may ask the model."""
MAX_PARTS = 1_000_000
"""Commas and brackets in a message: each may become a Python object of 60 bytes or more."""
MAX_PROMPT_MESSAGES = 4_096
"""Messages with prompts that an operation may send. A message may hold no prompt."""
MAX_PROMPT_CHARS = 64 * 2**20
"""Characters of all prompts of an operation. The worker keeps those of one message (8 MiB) at a time."""
MAX_CHANNEL_REQUESTS = 1_000
"""Requests to channels and MCP servers per operation."""
MAX_WAIT_SECONDS = 1_800.0
"""Total time that an operation may wait for people. It occupies a thread of a worker meanwhile."""
T = TypeVar("T")
Whole = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class BlockBrief(msgspec.Struct, frozen=True):
    """The part of a recorded block that the environment needs."""

    index: int
    type: str
    body: str


Blocks = Callable[[int], list[BlockBrief]]
"""Returns the trace's blocks from an index on."""
Complete = Callable[["CompleteRequest"], list[str]]
"""Returns texts with which the model continues a prompt."""
Ask = Callable[[list[str]], list[tuple[float, float]]]
"""Returns the model's probabilities of yes and of no after each prompt."""


def no_blocks(since: int) -> list[BlockBrief]:
    return []


def undecided(prompts: list[str]) -> list[tuple[float, float]]:
    """Answer as a model for which yes and no are equally likely."""
    return [(0.5, 0.5)] * len(prompts)


def silent(request: "CompleteRequest") -> list[str]:
    """Answer as a model that ends every text at once."""
    return [""] * request.n


class Hello(msgspec.Struct, frozen=True):
    blocks: Whole


class AskRequest(msgspec.Struct, frozen=True):
    number: Whole
    prompts: list[str]


class CompleteRequest(msgspec.Struct, frozen=True):
    number: Whole
    prompt: str
    n: Annotated[int, msgspec.Meta(ge=1, le=64)]
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=8_192)]
    stop: Annotated[list[Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]], msgspec.Meta(max_length=16)]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)]


class ToolRequest(msgspec.Struct, frozen=True):
    """A call of a tool of an MCP server that the worker asks."""

    number: Whole
    turn: Whole
    """Which request of its step this is, from 1. A repeated one gets the answer of the first time."""
    server: str
    tool: str
    arguments: str
    """JSON, which may be anything that the box has sent."""


CallTool = Callable[[ToolRequest], dict[str, Any]]
"""Calls a tool. Returns {"values": text} or {"error": reason}."""


def no_tools(request: ToolRequest) -> dict[str, Any]:
    return {"error": "there are no MCP servers here"}


class Message(msgspec.Struct, frozen=True):
    """A message of the box. One of the fields is set."""

    hello: Hello | None = None
    ask: AskRequest | None = None
    complete: CompleteRequest | None = None
    chat: Exchange | None = None
    tool: ToolRequest | None = None
    result: Executed | None = None
    step_id: int | None = None
    """The step of `result`."""
    replaced: bool = False


class SessionBroken(Exception):
    """The session can't continue: the connection was closed (`cut`), time is up, or a message is invalid."""

    def __init__(self, text: str, *, cut: bool = False):
        super().__init__(text)
        self.cut = cut


class ClientSession(contextlib.AbstractContextManager["ClientSession"]):
    """A connection to an environment, with a time limit. Its methods raise SessionBroken and nothing else."""

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
            raise SessionBroken(f"it can't be reached: {error}", cut=True) from error

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
                    raise SessionBroken("it closed the connection", cut=True)
                self.payloads.extend(self.reader.feed(data))
            payload = self.payloads.popleft()
            if sum(payload.count(sign) for sign in b",[{") > MAX_PARTS:
                raise BrokenFrame(f"a message has more than {MAX_PARTS:,} parts")
            return self.decoder.decode(payload)

    def check_time(self) -> None:
        """Raise TimeoutError if time is up, even if the box sends so fast that the socket never waits."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)

    def hello(self) -> int:
        """Read the greeting. Returns how many blocks the box knows."""
        hello = self.receive().hello
        if hello is None:
            raise SessionBroken("it sent no greeting")
        return hello.blocks

    @contextlib.contextmanager
    def in_time(self) -> Iterator[None]:
        try:
            self.check_time()
            yield
        except TimeoutError as error:
            raise SessionBroken(f"no answer within {self.seconds:g} seconds") from error
        except OSError as error:
            raise SessionBroken(str(error), cut=True) from error
        except (BrokenFrame, InvalidAnswer, msgspec.MsgspecError) as error:
            raise SessionBroken(f"it sent an invalid message: {error}") from error
        except (UnicodeError, RecursionError, OverflowError) as error:  # msgspec does not convert these
            raise SessionBroken(f"it sent an invalid message: {type(error).__name__}") from None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Extend the deadline by the time that the body takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.deadline += time.monotonic() - began


def block_messages(blocks: Blocks, known: int) -> Iterator[dict[str, Any]]:
    """Yield messages with the blocks that the box does not know yet."""
    batch: list[tuple[int, str, str]] = []
    size = 0
    for block in blocks(known):
        batch.append((block.index, str(block.type), block.body))
        size += len(block.body)
        if size > MAX_BLOCK_CHARS_PER_MESSAGE:
            yield {"blocks": batch}
            batch, size = [], 0
    if batch:
        yield {"blocks": batch}


class Usage:
    """Counts the requests of an operation, and raises SessionBroken above a limit."""

    def __init__(self) -> None:
        self.channel_requests = self.prompt_messages = self.prompts = self.prompt_chars = 0
        self.waited = 0.0

    def count_channel_request(self, wait: float) -> None:
        self.channel_requests += 1
        self.waited += wait
        if self.channel_requests > MAX_CHANNEL_REQUESTS or self.waited > MAX_WAIT_SECONDS:
            raise SessionBroken(
                f"it made more than {MAX_CHANNEL_REQUESTS:,} requests to channels or MCP servers in one operation, "
                f"or waited for more than {MAX_WAIT_SECONDS:,.0f} seconds"
            )

    def count_prompts(self, prompts: list[str], sequences: int) -> None:
        self.prompt_messages += 1
        self.prompts += sequences
        self.prompt_chars += sum(map(len, prompts))
        too_many = self.prompt_messages > MAX_PROMPT_MESSAGES or self.prompts > MAX_PROMPTS
        if too_many or self.prompt_chars > MAX_PROMPT_CHARS:
            raise SessionBroken(f"it asked the model more than {MAX_PROMPTS:,} prompts per operation, or too much text")


def await_result(
    session: ClientSession, ask: Ask, complete: Complete, chat: Chat, tool: CallTool, step_id: int, step: Execute
) -> Executed:
    """Answer the box's requests until it sends the result of the step. Raises SessionBroken, TransientError."""
    usage = Usage()
    while True:
        message = session.receive()
        if message.result is not None:
            with session.in_time():
                if message.step_id != step_id:
                    raise InvalidAnswer(f"the result of step {message.step_id} instead of step {step_id}")
                return check_answer(message.result, step)
        if message.replaced:
            raise TransientError("another worker has taken this step over")
        if (request := message.chat) is not None:
            usage.count_channel_request(request.wait)
            reply(session, request.number, (request.text, request.channel), partial(chat, request))
        elif (call := message.tool) is not None:
            usage.count_channel_request(0.0)
            reply(session, call.number, (call.server, call.tool, call.arguments), partial(tool, call))
        elif message.ask is not None:
            prompts = message.ask.prompts
            usage.count_prompts(prompts, len(prompts))
            reply(session, message.ask.number, prompts, partial(answer, ask, prompts))
        elif (wish := message.complete) is not None:
            usage.count_prompts([wish.prompt], wish.n)
            reply(session, wish.number, (wish.prompt, *wish.stop), partial(answer, complete, wish))
        else:
            raise SessionBroken("it sent an empty message")


def reply(session: ClientSession, number: int, texts: Iterable[str], work: Callable[[], dict[str, Any]]) -> None:
    """Check the texts of a request, and send what `work` returns, whose time does not count."""
    with session.in_time():
        for text in texts:
            check_text(text, len(text))
    with session.paused():
        answers = work()
    session.send({"answers": {"number": number, **answers}})


def answer(work: Callable[[T], Any], asked: T) -> dict[str, Any]:
    try:
        return {"values": work(asked)}
    except ModelError as error:
        return {"error": str(error)}
