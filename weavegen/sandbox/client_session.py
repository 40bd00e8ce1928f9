"""The worker's side of the socket protocol (box/wire.py), with limits on the number, size and time of messages."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from weavegen.box.wire import MAX_BYTES_FROM_BOX, MAX_BYTES_TO_BOX, BrokenFrame, frame, read_frame
from weavegen.channels.exchange import Chat, Exchange
from weavegen.errors import ModelError, TransientError
from weavegen.kernel.steps import Execute, Executed
from weavegen.sandbox.answer import InvalidAnswer, check_answer, check_text

BLOCKS_PER_MESSAGE = 8  # a block that the model wrote has 100,000 characters at most, of up to six bytes each
MAX_PARTS = 1_000_000  # commas and brackets in a message: each may become a Python object of 60 bytes or more
MOST = {
    "prompts": 4_096,
    "messages with prompts": 4_096,  # a message may hold no prompt
    "characters of prompts": 64 * 2**20,  # the worker keeps those of one message (8 MiB) at a time
    "requests to channels and MCP servers": 1_000,
    "seconds of waiting for people": 1_800,  # meanwhile the operation occupies a worker thread
}
"""Limits of an operation."""
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
    turn: Whole | None = None  # as in ToolRequest, among the requests for texts; None: a box of an earlier version


class ToolRequest(msgspec.Struct, frozen=True):
    """A call of a tool of an MCP server that the worker asks."""

    number: Whole
    turn: Whole
    """The request's number in its step, from 1. A repeated request gets the first answer again."""
    server: str
    tool: str
    arguments: str
    """JSON as the box sent it, unchecked."""


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
            payload = read_frame(self.connection.fileno(), MAX_BYTES_FROM_BOX, self.deadline)
            if sum(payload.count(sign) for sign in b",[{") > MAX_PARTS:
                raise BrokenFrame(f"a message has more than {MAX_PARTS:,} parts")
            return self.decoder.decode(payload)

    def hello(self) -> int:
        """Read the greeting. Returns how many blocks the box knows."""
        if (hello := self.receive().hello) is None:
            raise SessionBroken("it sent no greeting")
        return hello.blocks

    @contextlib.contextmanager
    def in_time(self) -> Iterator[None]:
        try:
            if (left := self.deadline - time.monotonic()) <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            yield
        except TimeoutError as error:
            raise SessionBroken(f"no answer within {self.seconds:g} seconds") from error
        except (OSError, EOFError) as error:
            raise SessionBroken(str(error) or "it closed the connection", cut=True) from error
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
    found = [(block.index, str(block.type), block.body) for block in blocks(known)]
    for first in range(0, len(found), BLOCKS_PER_MESSAGE):
        yield {"blocks": found[first : first + BLOCKS_PER_MESSAGE]}


def count(used: dict[str, float], more: dict[str, float]) -> None:
    """Add to what an operation has used. Raises SessionBroken above MOST."""
    for name, amount in more.items():
        used[name] += amount
        if used[name] > MOST[name]:
            raise SessionBroken(f"it used more than {MOST[name]:,} {name} in one operation")


def of_prompts(prompts: list[str], sequences: int) -> dict[str, float]:
    """What a message with prompts uses."""
    return {"prompts": sequences, "messages with prompts": 1, "characters of prompts": sum(map(len, prompts))}


def await_result(
    session: ClientSession, ask: Ask, complete: Complete, chat: Chat, tool: CallTool, step_id: int, step: Execute
) -> Executed:
    """Answer the box's requests until it sends the result of the step. Raises SessionBroken, TransientError."""
    used = dict.fromkeys(MOST, 0.0)
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
            count(used, {"requests to channels and MCP servers": 1, "seconds of waiting for people": request.wait})
            reply(session, request.number, (request.text, request.channel), partial(chat, request))
        elif (call := message.tool) is not None:
            count(used, {"requests to channels and MCP servers": 1})
            reply(session, call.number, (call.server, call.tool, call.arguments), partial(tool, call))
        elif message.ask is not None:
            prompts = message.ask.prompts
            count(used, of_prompts(prompts, len(prompts)))
            reply(session, message.ask.number, prompts, partial(answer, ask, prompts))
        elif (wish := message.complete) is not None:
            count(used, of_prompts([wish.prompt], wish.n))
            reply(session, wish.number, (wish.prompt, *wish.stop), partial(answer, complete, wish))
        else:
            raise SessionBroken("it sent an empty message")


def reply(session: ClientSession, number: int, texts: Iterable[str], work: Callable[[], dict[str, Any]]) -> None:
    """Check the texts of a request, and send what `work` returns. The time that `work` takes does not count."""
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
